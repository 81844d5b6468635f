package smalldisk

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// variable is the environment variable with the folder of the disk in the process that runs the test.
const variable = "HCPMESH_TEST_SMALL_DISK"

// bytesPerFile is the size of the disk for each file that it can have.
const bytesPerFile = 4096

// Run calls test with an empty folder on a disk of the given size in bytes. It runs the calling test again in a child process, in
// which test is called; elsewhere it only reports the result of that process. A test must call it once, and must not be a subtest.
func Run(t *testing.T, size int64, test func(t *testing.T, dir string)) {
	t.Helper()
	if dir := os.Getenv(variable); dir != "" {
		Mount(t, dir, size)
		test(t, dir)
		return
	}
	dir := t.TempDir()
	// The programs that a test starts can have another user, who must be able to enter the folders above.
	for parent := dir; strings.HasPrefix(parent, os.TempDir()+"/"); parent = filepath.Dir(parent) {
		if err := os.Chmod(parent, 0o755); err != nil {
			break
		}
	}
	child := exec.CommandContext(t.Context(), os.Args[0], arguments(t)...)
	child.Env = append(os.Environ(), variable+"="+dir)
	// With Unshareflags, package syscall makes all mounts of the namespace private.
	child.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	if os.Geteuid() != 0 {
		child.SysProcAttr.Cloneflags = syscall.CLONE_NEWUSER
		child.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
		child.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}
	}
	var output bytes.Buffer
	var written io.Writer = &output
	if testing.Verbose() { // tests of an hour show their progress
		written = io.MultiWriter(&output, os.Stdout)
	}
	child.Stdout, child.Stderr = written, written
	if err := child.Run(); err != nil {
		t.Fatalf("the test on a small disk: %v\n%s", err, &output)
	}
	if !strings.Contains(output.String(), "--- PASS: "+t.Name()) {
		t.Fatalf("the test on a small disk did not run:\n%s", &output)
	}
}

// margin is the time by which the child process ends before this one at their deadlines, so that its stacks are reported.
const margin = 10 * time.Second

// arguments returns the arguments of the child process: the flags that the test package defines are the same.
func arguments(t *testing.T) []string {
	timeout := 5 * time.Minute
	if deadline, ok := t.Deadline(); ok {
		timeout = max(time.Until(deadline)-margin, margin)
	}
	list := []string{"-test.run=^" + t.Name() + "$", "-test.v", "-test.timeout=" + timeout.String()}
	flag.Visit(func(f *flag.Flag) {
		if !strings.HasPrefix(f.Name, "test.") {
			list = append(list, "-"+f.Name+"="+f.Value.String())
		}
	})
	return list
}

// Mount mounts a disk of the given size in bytes on a folder, which it creates. It may be called only within Run, and the disk exists
// until the process of the test ends.
func Mount(t *testing.T, dir string, size int64) {
	t.Helper()
	if os.Getenv(variable) == "" {
		t.Fatal("Mount was called outside Run")
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("smalldisk", dir, "tmpfs", 0, fmt.Sprintf("size=%d,nr_inodes=%d,mode=0755", size, 16+size/bytesPerFile)); err != nil {
		t.Fatalf("mounting a tmpfs in a mount namespace: %v", err)
	}
}
