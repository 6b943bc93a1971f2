package cli

import (
	"context"
	"time"

	"github.com/spf13/cobra"
)

type completion = func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective)

// completeWait bounds how long a person waits for the tabulator key.
const completeWait = time.Second

// complete offers the names that list finds; none if the cluster does not answer in time.
func complete(env *Env, list func(context.Context, *admin) ([]string, error)) completion {
	return func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		env.timeout = min(env.timeout, completeWait)
		ctx := cmd.Context()
		if ctx == nil {
			ctx = context.Background()
		}
		var names []string
		err := env.admin(ctx, func(ctx context.Context, adm *admin) (err error) {
			names, err = list(ctx, adm)
			return err
		})
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}

func completeTopics(env *Env) completion {
	return complete(env, func(ctx context.Context, adm *admin) ([]string, error) {
		topics, err := adm.ListTopics(ctx)
		return topics.Names(), err
	})
}

func completeGroups(env *Env) completion {
	return complete(env, func(ctx context.Context, adm *admin) ([]string, error) {
		groups, err := adm.ListGroups(ctx)
		return groups.Groups(), err
	})
}
