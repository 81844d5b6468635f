package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"time"
)

// profileTime is how long the processor's time of a process is sampled, a hundred times in each second that it runs.
const profileTime = 3 * time.Second

// profile samples where a process spends its time, from its ops address, while during runs; both have ended on return.
func profile(ctx context.Context, ops string, during func() error) (path string, err error) {
	path = filepath.Join(os.TempDir(), fmt.Sprintf("hcpmesh-bench-%d.pprof", os.Getpid()))
	sampled := make(chan error, 1)
	go func() {
		sampled <- download(ctx, fmt.Sprintf("http://%s/debug/pprof/profile?seconds=%d", ops, int(profileTime/time.Second)), path)
	}()
	err = during()
	if sampleErr := <-sampled; err == nil && sampleErr != nil {
		err = fmt.Errorf("sampling the processor's time: %w", sampleErr)
	}
	return path, err
}

func download(ctx context.Context, url, path string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", url, response.Status)
	}
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	if _, err := io.Copy(file, response.Body); err != nil {
		_ = file.Close()
		return err
	}
	return file.Close()
}

// accounted is what `go tool pprof -top` says first: how much of a profile it shows.
var accounted = regexp.MustCompile(`(?m)^Showing nodes accounting for \S+, ([0-9.]+)% of`)

// share is the part of a profile whose stacks have a function that matches in, and none that matches out.
func share(ctx context.Context, path, in, out string) (float64, error) {
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
		return 0, nil // nothing of the kind was sampled
	}
	percent, err := strconv.ParseFloat(string(found[1]), 64)
	return percent / 100, err
}
