package machine

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// cgroupRoot is the folder in which the hierarchies of cgroup version 1 are mounted, in the host and in every machine.
	cgroupRoot = "/sys/fs/cgroup"
	// groupPrefix is the beginning of the name of the cgroups of outermost machines.
	groupPrefix = "hcpmesh-machine-"
	// removalTimeout bounds the wait for a cgroup that the kernel still considers in use.
	removalTimeout = 10 * time.Second
	// removalInterval is the interval of the attempts to remove such a cgroup. The kernel offers no event for it.
	removalInterval = 20 * time.Millisecond
)

// requiredControllers are the controllers of version 1 that kubelet and runc need.
var requiredControllers = []string{"cpu", "cpuacct", "cpuset", "devices", "freezer", "memory", "pids"}

// hierarchy is a hierarchy of cgroup version 1.
type hierarchy struct {
	// options are the mount options that select it: "memory", "cpu,cpuacct" or "none,name=systemd".
	options string
	// mount is the folder in which it is mounted, and own the folder of the calling process's cgroup.
	mount, own string
}

// controllers returns the names of the hierarchy's controllers.
func (h hierarchy) controllers() []string { return strings.Split(h.options, ",") }

// hierarchies returns the hierarchies of version 1 that are mounted, with the cgroups of the calling process.
func hierarchies() ([]hierarchy, error) {
	data, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return nil, err
	}
	var found []hierarchy
	lines := bufio.NewScanner(bytes.NewReader(data))
	for lines.Scan() {
		// 4:memory:/path, 9:name=systemd:/path, or 0::/path for version 2
		id, rest, _ := strings.Cut(lines.Text(), ":")
		options, group, ok := strings.Cut(rest, ":")
		if !ok || id == "0" || options == "" {
			continue
		}
		name, named := strings.CutPrefix(options, "name=")
		if named {
			options = "none," + options
		}
		h := hierarchy{options: options, mount: filepath.Join(cgroupRoot, name)}
		h.own = filepath.Join(h.mount, group)
		if _, err := os.Stat(filepath.Join(h.own, "cgroup.procs")); err != nil {
			continue // not mounted here, or another process moved this one
		}
		found = append(found, h)
	}
	return found, lines.Err()
}

// checkCgroups returns an error if a controller that kubelet needs is not available in a hierarchy of version 1.
func checkCgroups() error {
	all, err := hierarchies()
	if err != nil {
		return err
	}
	var missing []string
	for _, controller := range requiredControllers {
		if !slices.ContainsFunc(all, func(h hierarchy) bool { return slices.Contains(h.controllers(), controller) }) {
			missing = append(missing, controller)
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("the cgroup controllers %s are not mounted as hierarchies of version 1 in %s (version 2 is not supported)",
			strings.Join(missing, ", "), cgroupRoot)
	}
	return nil
}

// group is a cgroup with one name in all hierarchies, below the cgroups of the process that created it.
type group struct {
	name        string
	hierarchies []hierarchy
}

// createGroup creates a cgroup in all hierarchies. One that an earlier process left is removed before.
func createGroup(ctx context.Context, name string) (*group, error) {
	all, err := hierarchies()
	if err != nil {
		return nil, err
	}
	g := &group{name: name, hierarchies: all}
	if err := g.remove(ctx); err != nil {
		return nil, err
	}
	for _, h := range all {
		dir := filepath.Join(h.own, name)
		if err := os.Mkdir(dir, 0o755); err != nil {
			return nil, errors.Join(err, g.remove(ctx))
		}
		if !slices.Contains(h.controllers(), "cpuset") {
			continue
		}
		// A process cannot join a cgroup without processors and memory nodes, and new ones have none.
		for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
			value, err := os.ReadFile(filepath.Join(h.own, file))
			if err == nil {
				err = os.WriteFile(filepath.Join(dir, file), value, 0)
			}
			if err != nil {
				return nil, errors.Join(err, g.remove(ctx))
			}
		}
	}
	return g, nil
}

// join moves the calling process into the group.
func (g *group) join() error {
	for _, h := range g.hierarchies {
		if err := enterGroup(filepath.Join(h.own, g.name)); err != nil {
			return err
		}
	}
	return nil
}

// leave moves the calling process back to the cgroups that it had when the group was created.
func (g *group) leave() error {
	var failed error
	for _, h := range g.hierarchies {
		failed = errors.Join(failed, enterGroup(h.own))
	}
	return failed
}

// enterGroup moves the calling process into the cgroup in dir.
func enterGroup(dir string) error {
	return os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte("0"), 0)
}

// remove removes the group and the cgroups that processes inside have created. No process may be in any of them.
func (g *group) remove(ctx context.Context) error {
	var failed error
	for _, h := range g.hierarchies {
		failed = errors.Join(failed, removeGroups(ctx, filepath.Join(h.own, g.name)))
	}
	return failed
}

// removeGroups removes a cgroup and those below it. It waits while the kernel reports that one is busy, which it does for some
// milliseconds after the last process has terminated.
func removeGroups(ctx context.Context, dir string) error {
	ctx, cancel := context.WithTimeout(ctx, removalTimeout)
	defer cancel()
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, entry := range entries {
		if entry.IsDir() {
			if err := removeGroups(ctx, filepath.Join(dir, entry.Name())); err != nil {
				return err
			}
		}
	}
	for {
		err := unix.Rmdir(dir)
		if err == nil || errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if !errors.Is(err, unix.EBUSY) {
			return fmt.Errorf("removing the cgroup %s: %w", dir, err)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("removing the cgroup %s: %w", dir, err)
		case <-time.After(removalInterval):
		}
	}
}

// ownGroupName returns the name of the cgroup of an outermost machine whose launcher is this process. It contains what identifies the
// process, so that removeAbandoned recognizes the cgroups of launchers that were killed.
func ownGroupName() (string, error) {
	start, err := startTime(os.Getpid())
	if err != nil {
		return "", err
	}
	return groupPrefix + strconv.Itoa(os.Getpid()) + "-" + start, nil
}

// removeAbandoned removes the cgroups of outermost machines whose launcher does not exist any more.
func removeAbandoned(ctx context.Context) error {
	all, err := hierarchies()
	if err != nil {
		return err
	}
	for _, h := range all {
		dirs, err := filepath.Glob(filepath.Join(h.own, groupPrefix+"*"))
		if err != nil {
			return err
		}
		for _, dir := range dirs {
			id, start, _ := strings.Cut(strings.TrimPrefix(filepath.Base(dir), groupPrefix), "-")
			pid, err := strconv.Atoi(id)
			if err != nil {
				continue
			}
			if current, err := startTime(pid); err == nil && current == start {
				continue
			}
			if err := removeGroups(ctx, dir); err != nil {
				return err
			}
		}
	}
	return nil
}

// startTime returns when a process was started, in clock ticks since the start of the system. Together with the process ID it
// identifies a process.
func startTime(pid int) (string, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", err
	}
	// The name, field 2, is in parentheses and can contain spaces; the start time is field 22.
	_, rest, _ := strings.Cut(string(stat), ") ")
	fields := strings.Fields(rest)
	if len(fields) < 20 {
		return "", fmt.Errorf("/proc/%d/stat has %d fields", pid, len(fields)+2)
	}
	return fields[19], nil
}
