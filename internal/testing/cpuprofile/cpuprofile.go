// Package cpuprofile reads CPU profiles for benchmarks that compare parts of a program with each other. A share does not depend on how busy the
// machine is, which times do.
package cpuprofile

import (
	"context"
	"fmt"
	"os/exec"
	"regexp"
	"strconv"
)

// accounted matches the header of `go tool pprof -top`, which states the share of the profile that it shows.
var accounted = regexp.MustCompile(`(?m)^Showing nodes accounting for \S+, ([0-9.]+)% of`)

// Share returns the share of a profile, from 0 to 1, with stacks that contain a function that matches in and none that matches out. An empty out
// matches nothing.
func Share(ctx context.Context, path, in, out string) (float64, error) {
	arguments := []string{"tool", "pprof", "-top", "-nodefraction=0", "-nodecount=1000000", "-focus=" + in}
	if out != "" {
		arguments = append(arguments, "-ignore="+out)
	}
	command := exec.CommandContext(ctx, "go", append(arguments, path)...)
	output, err := command.Output()
	if err != nil {
		return 0, fmt.Errorf("reading the profile: %w", err)
	}
	found := accounted.FindSubmatch(output)
	if found == nil {
		return 0, nil // no sample matches
	}
	percent, err := strconv.ParseFloat(string(found[1]), 64)
	return percent / 100, err
}
