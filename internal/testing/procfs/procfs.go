// Package procfs reads /proc on Linux for tests and benchmarks: memory and CPU time of a process, and the processes that run a
// given command. A process that has exited uses nothing; this is not an error.
package procfs

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// clockTick is the unit of the times in /proc/PID/stat: USER_HZ, which Linux fixes at 100 for programs (proc(5)).
const clockTick = 10 * time.Millisecond

// Resident returns the resident memory of a process in bytes, or 0 if it has exited.
func Resident(pid int) int64 {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(data))
	if len(fields) < 2 {
		return 0
	}
	pages, _ := strconv.ParseInt(fields[1], 10, 64)
	return pages * int64(os.Getpagesize())
}

// CPUTime returns the CPU time of a process in user and kernel mode, or 0 if it has exited.
func CPUTime(pid int) time.Duration {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	// The name in parentheses may contain spaces. utime is field 14, stime is field 15.
	_, rest, _ := strings.Cut(string(data), ") ")
	fields := strings.Fields(rest)
	if len(fields) < 13 {
		return 0
	}
	user, _ := strconv.ParseInt(fields[11], 10, 64)
	system, _ := strconv.ParseInt(fields[12], 10, 64)
	return time.Duration(user+system) * clockTick
}

// Process is a running process.
type Process struct {
	PID int
	// Command is the command line, with spaces between the arguments.
	Command string
}

// Find returns the processes whose command line contains all of the texts.
func Find(texts ...string) []Process {
	var found []Process
	paths, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil { // the process has exited
			continue
		}
		command := strings.TrimSpace(strings.ReplaceAll(string(data), "\x00", " "))
		matches := true
		for _, text := range texts {
			matches = matches && strings.Contains(command, text)
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path))); err == nil && matches {
			found = append(found, Process{PID: pid, Command: command})
		}
	}
	return found
}

// HostedAPIServers returns the API servers of hosted control planes that store their state in the given etcd.
func HostedAPIServers(etcd string) []Process {
	return Find("kube-apiserver", etcd, "--etcd-prefix=/hosted/")
}
