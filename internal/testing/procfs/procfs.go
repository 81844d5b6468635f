// Package procfs reads /proc on Linux for tests and benchmarks: memory and CPU time of a process, the processes that run a
// given command, and what they listen on. A process that has exited uses nothing; this is not an error.
package procfs

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/netip"
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

// CPUTime returns the CPU time of a process and its descendants in user and kernel mode, or 0 if it has exited. It does not include descendants
// that have exited and that their parents have not waited for.
func CPUTime(pid int) time.Duration {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	// The name in parentheses may contain spaces. The fields 14 to 17 are utime, stime, and those of children that were waited for.
	_, rest, _ := strings.Cut(string(data), ") ")
	fields := strings.Fields(rest)
	if len(fields) < 15 {
		return 0
	}
	var used time.Duration
	for _, field := range fields[11:15] {
		ticks, _ := strconv.ParseInt(field, 10, 64)
		used += time.Duration(ticks) * clockTick
	}
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, path := range threads {
		children, _ := os.ReadFile(path)
		for child := range strings.FieldsSeq(string(children)) {
			number, _ := strconv.Atoi(child)
			used += CPUTime(number)
		}
	}
	return used
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

// Listener is a TCP socket that a process listens on.
type Listener struct {
	Address netip.AddrPort
	// Command is the command line of a process that has the socket.
	Command string
}

// Listeners returns the TCP sockets over IPv4 that descendants of a process listen on.
func Listeners(ancestor int) ([]Listener, error) {
	table, err := os.ReadFile("/proc/net/tcp")
	if err != nil {
		return nil, err
	}
	addresses := map[string]netip.AddrPort{} // by the link of a file descriptor
	for line := range strings.Lines(string(table)) {
		// The local address is field 1, the state is field 3, and the inode is field 9 (proc_net_tcp).
		const listen = "0A"
		if fields := strings.Fields(line); len(fields) > 9 && fields[3] == listen {
			address, err := parseAddress(fields[1])
			if err != nil {
				return nil, err
			}
			addresses["socket:["+fields[9]+"]"] = address
		}
	}
	parents := map[int]int{}
	all := Find()
	for _, p := range all {
		parents[p.PID] = parent(p.PID)
	}
	var found []Listener
	for _, p := range all {
		if !descends(p.PID, ancestor, parents) {
			continue
		}
		descriptors, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", p.PID))
		for _, descriptor := range descriptors {
			link, err := os.Readlink(descriptor)
			if address, listening := addresses[link]; err == nil && listening {
				found = append(found, Listener{Address: address, Command: p.Command})
				delete(addresses, link) // child processes have the same socket
			}
		}
	}
	return found, nil
}

// parseAddress parses an address of /proc/net/tcp: the IPv4 address in the byte order of the machine and the port, both hexadecimal.
func parseAddress(text string) (netip.AddrPort, error) {
	host, port, _ := strings.Cut(text, ":")
	address, err := hex.DecodeString(host)
	number, portErr := strconv.ParseUint(port, 16, 16)
	if err := errors.Join(err, portErr); err != nil || len(address) != net.IPv4len {
		return netip.AddrPort{}, fmt.Errorf("/proc/net/tcp: the address %q: %w", text, err)
	}
	var ip [net.IPv4len]byte
	binary.NativeEndian.PutUint32(ip[:], binary.BigEndian.Uint32(address))
	return netip.AddrPortFrom(netip.AddrFrom4(ip), uint16(number)), nil
}

// parent returns the parent of a process, or 0 if it has exited.
func parent(pid int) int {
	data, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, rest, _ := strings.Cut(string(data), ") ")
	if fields := strings.Fields(rest); len(fields) > 1 {
		number, _ := strconv.Atoi(fields[1])
		return number
	}
	return 0
}

func descends(pid, ancestor int, parents map[int]int) bool {
	for p := parents[pid]; p > 1; p = parents[p] {
		if p == ancestor {
			return true
		}
	}
	return false
}
