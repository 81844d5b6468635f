package local

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// tcpListen is the state of a listening socket in /proc/net/tcp (proc(5)).
const tcpListen = "0A"

// holder returns the process that listens on a port, or "" if this user may not see it.
func holder(port int) string {
	inodes := map[string]bool{}
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		collectListeners(table, port, inodes)
	}
	if len(inodes) == 0 {
		return ""
	}
	descriptors, _ := filepath.Glob("/proc/[0-9]*/fd/*")
	for _, descriptor := range descriptors {
		target, err := os.Readlink(descriptor)
		if err != nil || !inodes[target] {
			continue
		}
		pid := strings.Split(descriptor, "/")[2]
		name, err := os.ReadFile(filepath.Join("/proc", pid, "comm"))
		if err != nil {
			continue
		}
		return fmt.Sprintf("%s (pid %s)", strings.TrimSpace(string(name)), pid)
	}
	return ""
}

// collectListeners adds the sockets that listen on port, in the format of the links of file descriptors.
func collectListeners(table string, port int, inodes map[string]bool) {
	file, err := os.Open(table)
	if err != nil {
		return
	}
	defer file.Close()
	suffix := fmt.Sprintf(":%04X", port)
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) > 9 && strings.HasSuffix(fields[1], suffix) && fields[3] == tcpListen {
			inodes["socket:["+fields[9]+"]"] = true
		}
	}
}
