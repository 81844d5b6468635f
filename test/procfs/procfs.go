// Package procfs reads what Linux tells of the region's processes, for tests and benchmarks: their memory, their time, and
// which of them run a given command. A process that is gone uses nothing; that is no error.
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

// Resident is the memory that a process holds, in bytes; 0 when it is gone.
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

// CPUTime is what a process and the children it has waited for have used, in user and kernel mode.
func CPUTime(pid int) time.Duration {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	// The name in parentheses may hold spaces; what counts comes after it. utime is field 14, stime 15.
	_, rest, _ := strings.Cut(string(data), ") ")
	fields := strings.Fields(rest)
	if len(fields) < 13 {
		return 0
	}
	user, _ := strconv.ParseInt(fields[11], 10, 64)
	system, _ := strconv.ParseInt(fields[12], 10, 64)
	return time.Duration(user+system) * clockTick
}

// Process is one that runs.
type Process struct {
	PID int
	// Command is its command line, the arguments apart by spaces.
	Command string
}

// With finds the processes whose command line holds all of the texts.
func With(texts ...string) []Process {
	var found []Process
	paths, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil { // it ended meanwhile
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

// HostedAPIServers finds the API servers of hosted control planes that keep their state in the etcd of a region.
func HostedAPIServers(etcd string) []Process {
	return With("kube-apiserver", etcd, "--etcd-prefix=/hosted/")
}
