package oracle

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
)

// Version is the release everything is compared with.
const Version = "4.4.0"

//go:embed pom.xml
var pom []byte

//go:embed log4j2.properties
var log4j []byte

// Kafka is an Apache Kafka that can be run: its jars and a Java for them.
type Kafka struct {
	libs, java, log4j string
}

// Fetch finds the jars, bringing them with Maven at the first use, and the newest Java installed.
func Fetch(ctx context.Context) (*Kafka, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return nil, err
	}
	home := filepath.Join(cache, "runnel", "apache-kafka-"+Version)
	if err := os.MkdirAll(home, 0o755); err != nil {
		return nil, err
	}
	k := &Kafka{libs: os.Getenv("RUNNEL_KAFKA_LIBS"), log4j: filepath.Join(home, "log4j2.properties")}
	if err := os.WriteFile(k.log4j, log4j, 0o644); err != nil {
		return nil, err
	}
	if k.java, err = newestJava(ctx); err != nil {
		return nil, err
	}
	if k.libs == "" {
		k.libs = filepath.Join(home, "libs")
		if err := fetchJars(ctx, home, k.libs); err != nil {
			return nil, fmt.Errorf("fetching Apache Kafka %s: %w", Version, err)
		}
	}
	return k, nil
}

// fetchJars fills libs under another name first, so that a fetch cut short or done twice at once leaves no half of it.
func fetchJars(ctx context.Context, home, libs string) error {
	if _, err := os.Stat(libs); err == nil {
		return nil
	}
	part, err := os.MkdirTemp(home, "fetching-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(part)
	if err := os.WriteFile(filepath.Join(part, "pom.xml"), pom, 0o644); err != nil {
		return err
	}
	jars := filepath.Join(part, "libs")
	cmd := exec.CommandContext(ctx, "mvn", "-q", "-B", "-f", filepath.Join(part, "pom.xml"),
		"dependency:copy-dependencies", "-DoutputDirectory="+jars, "-DincludeScope=runtime")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("mvn: %w\n%s", err, out)
	}
	if err := os.Rename(jars, libs); err != nil {
		if _, other := os.Stat(libs); other != nil {
			return err
		}
	}
	return nil
}

var javaVersion = regexp.MustCompile(`version "(\d+)`)

// newestJava looks at JAVA_HOME first, then at what is installed.
func newestJava(ctx context.Context) (string, error) {
	candidates, _ := filepath.Glob("/usr/lib/jvm/*/bin/java")
	if path, err := exec.LookPath("java"); err == nil {
		candidates = append(candidates, path)
	}
	if home := os.Getenv("JAVA_HOME"); home != "" {
		candidates = []string{filepath.Join(home, "bin", "java")}
	}
	best, newest := "", 0
	for _, c := range candidates {
		out, err := exec.CommandContext(ctx, c, "-version").CombinedOutput()
		if err != nil {
			continue
		}
		if m := javaVersion.FindSubmatch(out); m != nil {
			if v, _ := strconv.Atoi(string(m[1])); v > newest {
				best, newest = c, v
			}
		}
	}
	if newest < 17 {
		return "", errors.New("Apache Kafka needs Java 17 or newer: none found in JAVA_HOME, PATH or /usr/lib/jvm")
	}
	return best, nil
}
