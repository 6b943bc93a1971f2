package cli

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// Version is set by the linker for a release.
var Version = ""

func shortVersion() string {
	if Version != "" {
		return Version
	}
	return "dev"
}

type versionResult struct {
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"`
	Modified bool   `json:"modified,omitempty"`
	Kafka    string `json:"kafka"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

func buildVersion() versionResult {
	v := versionResult{Version: shortVersion(), Kafka: "4.4", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			v.Revision = s.Value[:min(12, len(s.Value))]
		case "vcs.modified":
			v.Modified = s.Value == "true"
		}
	}
	return v
}

func newVersionCommand(env *Env) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			v := buildVersion()
			return env.show(v, func() error {
				_, err := fmt.Fprintf(env.Stdout, "runnel %s (Kafka %s, %s, %s)\n", v.Version, v.Kafka, v.Go, v.Platform)
				return err
			})
		},
	}
}
