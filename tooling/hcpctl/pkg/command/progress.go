package command

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/hcpmesh/hcpmesh/internal/backoff"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/armclient"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/display"
)

// await shows the progress of an operation until it ends. If it cannot wait on, it names a command line that shows how far the operation is.
func (e *environment) await(ctx context.Context, client *armclient.Client, operation armclient.Operation, id, what, follow string) error {
	began := time.Now()
	live := display.NewLive(e.err)
	err := client.Await(ctx, operation, id, func(resource armclient.Resource) {
		live.Draw(progress(live, resource, what, time.Since(began)))
	})
	var nowhere *armclient.Unreachable
	switch {
	case ctx.Err() != nil:
		return interrupted("stopped waiting; the operation continues, see `%s`", follow)
	case errors.As(err, &nowhere):
		return fmt.Errorf("%s: the operation was accepted and continues, but its state cannot be read; see `%s`: %w", what, follow, err)
	case err != nil:
		return fmt.Errorf("%s: %w", what, err)
	}
	fmt.Fprintf(e.err, "%s: done after %s\n", what, time.Since(began).Round(100*time.Millisecond))
	return nil
}

// progress returns a line for the provisioning state of a resource and one for each of its conditions.
func progress(live *display.Live, resource armclient.Resource, what string, elapsed time.Duration) []display.Line {
	state := field(resource, "properties", "provisioningState")
	if resource == nil {
		state = "gone"
	}
	head := what + ": " + state
	if live.Terminal() {
		head += fmt.Sprintf(" (%s)", elapsed.Round(time.Second))
	}
	lines := []display.Line{{Key: "state", Text: head}}
	for _, condition := range conditions(resource) {
		kind, _, _ := strings.Cut(condition, "=")
		lines = append(lines, display.Line{Key: "condition " + kind, Text: "  " + condition})
	}
	return lines
}

// settled reports whether a provisioning state is terminal.
func settled(state string) bool {
	return state == "Succeeded" || state == "Failed" || state == "Canceled"
}

// watch shows a resource until its provisioning state is terminal or it is deleted.
func (e *environment) watch(ctx context.Context, client *armclient.Client, id, what string) error {
	began := time.Now()
	live := display.NewLive(e.err)
	for seen := false; ; seen = true {
		resource, err := client.Get(ctx, id)
		if seen && armclient.IsNotFound(err) {
			live.Draw([]display.Line{{Key: "state", Text: what + ": does not exist"}})
			return nil
		}
		if err != nil {
			return err
		}
		live.Draw(progress(live, resource, what, time.Since(began)))
		state := field(resource, "properties", "provisioningState")
		if state == "Succeeded" {
			return nil
		}
		if settled(state) {
			return fmt.Errorf("%s is %s", what, state)
		}
		if backoff.Sleep(ctx, time.Second) != nil {
			return interrupted("stopped watching")
		}
	}
}

// quoted returns a word for a shell.
func quoted(word string) string {
	if strings.ContainsAny(word, " '\"\\$`*?&|;<>()#~") {
		return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
	}
	return word
}

// commandLine returns a command line for the same subscription, resource group and endpoints as the current one.
func (e *environment) commandLine(words ...string) string {
	for _, flag := range []struct{ name, value, usual string }{
		{"subscription", e.arm.Subscription, DefaultSubscription}, {"resource-group", e.arm.Group, DefaultGroup}, {"endpoint", e.arm.Endpoint, ""},
		{"ca-file", e.arm.CAFile, ""}, {"credentials-file", e.arm.CredentialsFile, ""}, {"state-dir", e.stateDir, os.Getenv("HCPMESH_STATE_DIR")},
	} {
		if flag.value != flag.usual {
			words = append(words, "--"+flag.name, quoted(flag.value))
		}
	}
	return "hcpctl " + strings.Join(words, " ")
}
