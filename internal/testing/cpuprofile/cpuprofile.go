// Package cpuprofile reads CPU profiles for benchmarks that compare parts of a program with each other. A share does not depend on how busy the
// machine is, which times do.
package cpuprofile

import (
	"bytes"
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

// Function is a function with its shares of a profile, from 0 to 1: of the function itself, and with the functions that it calls.
type Function struct {
	Name       string
	Own, Total float64
}

// row matches a function in the output of `go tool pprof -top`: flat, flat%, sum%, cum, cum% and the name.
var row = regexp.MustCompile(`(?m)^ *\S+ +([0-9.]+)% +[0-9.]+% +\S+ +([0-9.]+)%  (.+)$`)

// Top returns the functions of a profile with the largest shares of their own, at most count. Their names have no folders.
func Top(ctx context.Context, path string, count int) ([]Function, error) {
	output, err := exec.CommandContext(ctx, "go", "tool", "pprof", "-top", "-nodefraction=0", "-nodecount="+strconv.Itoa(count), path).Output()
	if err != nil {
		return nil, fmt.Errorf("reading the profile: %w", err)
	}
	var functions []Function
	for _, found := range row.FindAllSubmatch(output, -1) {
		own, _ := strconv.ParseFloat(string(found[1]), 64)
		total, _ := strconv.ParseFloat(string(found[2]), 64)
		functions = append(functions, Function{Name: string(found[3][bytes.LastIndexByte(found[3], '/')+1:]), Own: own / 100, Total: total / 100})
	}
	return functions, nil
}
