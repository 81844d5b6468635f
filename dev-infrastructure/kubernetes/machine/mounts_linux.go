package machine

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// shared are the folders of the host that every machine has, read-only. Some of them are symbolic links.
var shared = []string{"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"}

// devices are the device files of a machine with a root of its own.
var devices = []string{"null", "zero", "full", "random", "urandom", "tty", "kmsg"}

// kernelSettings are the settings of the whole system that kubelet writes if they have other values, with the values that it wants.
// Inside a machine they are files of the machine.
var kernelSettings = map[string]string{
	"vm/overcommit_memory":      "1",
	"vm/panic_on_oom":           "0",
	"kernel/panic":              "10",
	"kernel/panic_on_oops":      "1",
	"kernel/keys/root_maxkeys":  "1000000",
	"kernel/keys/root_maxbytes": "25000000",
}

// mountSystem mounts the file systems that depend on namespaces into the root of the calling process: /proc, /sys and the cgroups.
// With root, it creates that root before and makes it the root of the process.
func mountSystem(root *Root) error {
	// A mount of the machine must not appear outside.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("making mounts private: %w", err)
	}
	all, err := hierarchies() // before /proc and /sys are replaced
	if err != nil {
		return err
	}
	if root != nil {
		if err := enterRoot(*root); err != nil {
			return err
		}
	}
	if err := mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return err
	}
	if err := mount("sysfs", "/sys", "sysfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC|unix.MS_RDONLY, ""); err != nil {
		return err
	}
	if err := mountCgroups(all); err != nil {
		return err
	}
	if err := protectKernelSettings(); err != nil {
		return err
	}
	// kubelet and containerd propagate mounts into containers, for which the mounts have to be shared.
	return unix.Mount("", "/", "", unix.MS_REC|unix.MS_SHARED, "")
}

// mount is mount(2) with an error that names the target.
func mount(source, target, fstype string, flags uintptr, data string) error {
	if err := unix.Mount(source, target, fstype, flags, data); err != nil {
		return fmt.Errorf("mounting %s at %s: %w", source, target, err)
	}
	return nil
}

// mountCgroups mounts the hierarchies. In a new cgroup namespace, the root of each is the cgroup of the machine.
func mountCgroups(all []hierarchy) error {
	if err := mount("tmpfs", cgroupRoot, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "mode=755"); err != nil {
		return err
	}
	for _, h := range all {
		if err := os.Mkdir(h.mount, 0o755); err != nil {
			return err
		}
		if err := mount("cgroup", h.mount, "cgroup", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, h.options); err != nil {
			return err
		}
		for _, controller := range h.controllers() {
			link := filepath.Join(cgroupRoot, controller)
			if filepath.Base(h.mount) == controller || controller == "none" || strings.HasPrefix(controller, "name=") {
				continue
			}
			if err := os.Symlink(filepath.Base(h.mount), link); err != nil {
				return err
			}
		}
	}
	return nil
}

// protectKernelSettings makes the settings of the whole system read-only and leaves those of the machine's network writable.
func protectKernelSettings() error {
	const settings, network = "/proc/sys", "/proc/sys/net"
	if err := mount(settings, settings, "", unix.MS_BIND, ""); err != nil {
		return err
	}
	if err := mount(network, network, "", unix.MS_BIND, ""); err != nil {
		return err
	}
	for name, value := range kernelSettings {
		target := filepath.Join(settings, name)
		if _, err := os.Stat(target); errors.Is(err, fs.ErrNotExist) {
			continue
		}
		file, err := os.CreateTemp("", "setting-")
		if err != nil {
			return err
		}
		_, err = file.WriteString(value + "\n")
		if err := errors.Join(err, file.Close()); err != nil {
			return err
		}
		if err := mount(file.Name(), target, "", unix.MS_BIND, ""); err != nil {
			return err
		}
		if err := os.Remove(file.Name()); err != nil { // the mount keeps it
			return err
		}
	}
	return mount(settings, settings, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "")
}

// enterRoot builds a root file system and makes it the root of the process. It unmounts the previous one.
func enterRoot(root Root) error {
	const path = "/sys" // no mount has its source there, and the mount is visible only in this machine until the root is replaced
	if err := mount("tmpfs", path, "tmpfs", 0, "mode=755"); err != nil {
		return err
	}
	for _, dir := range []string{"proc", "sys", "dev", "run", "tmp", "etc", "var", "opt", "root", ".previous"} {
		if err := os.Mkdir(filepath.Join(path, dir), 0o755); err != nil {
			return err
		}
	}
	if err := populateDevices(filepath.Join(path, "dev")); err != nil {
		return err
	}
	for _, dir := range shared {
		target, err := os.Readlink(dir)
		if err == nil {
			err = os.Symlink(target, filepath.Join(path, dir))
		} else if _, missing := os.Stat(dir); missing == nil {
			err = bind(path, Mount{Source: dir, Target: dir, ReadOnly: true})
		} else {
			err = nil
		}
		if err != nil {
			return err
		}
	}
	for _, dir := range []string{"run", "tmp"} {
		if err := mount("tmpfs", filepath.Join(path, dir), "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=755"); err != nil {
			return err
		}
	}
	for _, m := range root.Mounts {
		if err := bind(path, m); err != nil {
			return err
		}
	}
	if err := unix.PivotRoot(path, filepath.Join(path, ".previous")); err != nil {
		return fmt.Errorf("changing the root file system: %w", err)
	}
	if err := os.Chdir("/"); err != nil {
		return err
	}
	if err := unix.Unmount("/.previous", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("unmounting the previous root file system: %w", err)
	}
	return os.Remove("/.previous")
}

// bind mounts a file or folder into the root file system at path.
func bind(path string, m Mount) error {
	target := filepath.Join(path, m.Target)
	info, err := os.Stat(m.Source)
	if err != nil {
		return err
	}
	if info.IsDir() {
		err = os.MkdirAll(target, 0o755)
	} else if err = os.MkdirAll(filepath.Dir(target), 0o755); err == nil {
		err = os.WriteFile(target, nil, 0o644)
	}
	if err != nil {
		return err
	}
	if err := mount(m.Source, target, "", unix.MS_BIND, ""); err != nil || !m.ReadOnly {
		return err
	}
	return mount(m.Source, target, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, "")
}

// populateDevices creates the content of /dev in dir.
func populateDevices(dir string) error {
	if err := mount("tmpfs", dir, "tmpfs", unix.MS_NOSUID, "mode=755"); err != nil {
		return err
	}
	for _, name := range devices {
		if err := bind(dir, Mount{Source: filepath.Join("/dev", name), Target: name}); err != nil {
			return err
		}
	}
	for _, name := range []string{"pts", "shm"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
			return err
		}
	}
	if err := mount("devpts", filepath.Join(dir, "pts"), "devpts", unix.MS_NOSUID|unix.MS_NOEXEC, "newinstance,ptmxmode=0666,mode=0620"); err != nil {
		return err
	}
	if err := mount("tmpfs", filepath.Join(dir, "shm"), "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=1777"); err != nil {
		return err
	}
	for name, target := range map[string]string{"ptmx": "pts/ptmx", "fd": "/proc/self/fd", "stdin": "/proc/self/fd/0", "stdout": "/proc/self/fd/1", "stderr": "/proc/self/fd/2"} {
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	return nil
}
