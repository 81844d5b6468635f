// Package postgres runs PostgreSQL servers from the distribution's binaries, for the local region and for tests: it finds
// the binaries, makes a data directory, starts the server on loopback as an unprivileged user, makes databases and stops
// it again. It speaks no SQL; the services connect with the URLs that it gives.
package postgres

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/hcpmesh/hcpmesh/internal/spawn"
)

// superuser is the database role that owns everything.
const superuser = "hcpmesh"

// startTimeout bounds how long a server may take to accept connections, crash recovery included.
const startTimeout = 60 * time.Second

// Options say how a server runs.
type Options struct {
	// DataDir holds the cluster; it is made when absent. When the caller is root it comes to belong to the unprivileged
	// user, who must be able to reach it.
	DataDir string
	// Port on 127.0.0.1; 0 picks a free one.
	Port int
	// Throwaway gives up durability over a crash of the machine, not over one of the server, for speed. For tests only.
	Throwaway bool
	// MaxConnections defaults to 200.
	MaxConnections int
	// Log receives the server's log; nil discards it.
	Log io.Writer
}

// Server is a running PostgreSQL.
type Server struct {
	bin      string
	port     int
	password string
	account  *account
	process  *spawn.Process
}

// ErrNotInstalled is returned when no PostgreSQL server was found.
var ErrNotInstalled = errors.New("PostgreSQL 15 or later was not found; install it (Debian: apt-get install postgresql) or put its bin folder on PATH")

// BinDir finds the folder of initdb and postgres: the newest version of the distribution's, or PATH's.
func BinDir() (string, error) {
	candidates, _ := filepath.Glob("/usr/lib/postgresql/*/bin")
	homebrew, _ := filepath.Glob("/opt/homebrew/opt/postgresql@*/bin")
	fedora, _ := filepath.Glob("/usr/pgsql-*/bin")
	candidates = append(append(candidates, homebrew...), fedora...)
	sort.Slice(candidates, func(i, j int) bool { return majorVersion(candidates[i]) > majorVersion(candidates[j]) })
	if path, err := exec.LookPath("postgres"); err == nil {
		if real, err := filepath.EvalSymlinks(path); err == nil {
			candidates = append(candidates, filepath.Dir(real))
		}
	}
	for _, dir := range candidates {
		if executable(filepath.Join(dir, "initdb")) && executable(filepath.Join(dir, "postgres")) {
			return dir, nil
		}
	}
	return "", ErrNotInstalled
}

// majorVersion is the first number in a path, 0 without one.
func majorVersion(path string) int {
	digits := strings.FieldsFunc(path, func(r rune) bool { return r < '0' || r > '9' })
	if len(digits) == 0 {
		return 0
	}
	n, _ := strconv.Atoi(digits[0])
	return n
}

func executable(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
}

// Start runs a server and returns once it accepts connections. The server dies with this process.
func Start(ctx context.Context, options Options) (*Server, error) {
	bin, err := BinDir()
	if err != nil {
		return nil, err
	}
	unprivileged, err := unprivilegedAccount()
	if err != nil {
		return nil, err
	}
	server := &Server{bin: bin, account: unprivileged, port: options.Port}
	if err := server.initialize(ctx, options); err != nil {
		return nil, err
	}
	if server.port == 0 {
		if server.port, err = freePort(); err != nil {
			return nil, err
		}
	}
	if err := server.launch(options); err != nil {
		return nil, err
	}
	if err := server.awaitReady(ctx); err != nil {
		server.Kill()
		return nil, err
	}
	return server, nil
}

// initialize makes the data directory unless a whole one is there. It is built beside and renamed, so that a crash in
// between leaves nothing that looks finished.
func (s *Server) initialize(ctx context.Context, options Options) error {
	passwordFile := filepath.Join(options.DataDir, "superuser.password")
	if password, err := os.ReadFile(passwordFile); err == nil {
		s.password = strings.TrimSpace(string(password))
		return s.account.own(options.DataDir)
	}
	part := options.DataDir + ".part"
	if err := os.RemoveAll(part); err != nil {
		return err
	}
	if err := os.MkdirAll(part, 0o700); err != nil {
		return err
	}
	s.password = rand.Text()
	if err := os.WriteFile(filepath.Join(part, "superuser.password"), []byte(s.password), 0o600); err != nil {
		return err
	}
	if err := s.account.own(part); err != nil {
		return err
	}
	cluster := filepath.Join(part, "data")
	arguments := []string{"-D", cluster, "-U", superuser, "--pwfile", filepath.Join(part, "superuser.password"),
		"--auth=scram-sha-256", "--encoding=UTF8", "--locale=C"}
	if options.Throwaway {
		arguments = append(arguments, "--no-sync")
	}
	initdb := s.account.command(ctx, filepath.Join(s.bin, "initdb"), arguments...)
	if output, err := initdb.CombinedOutput(); err != nil {
		return fmt.Errorf("making a PostgreSQL data directory in %s as user %s (who must be able to reach it): %w: %s",
			options.DataDir, s.account.name, err, lastLine(output))
	}
	if err := os.MkdirAll(filepath.Dir(options.DataDir), 0o755); err != nil {
		return err
	}
	if err := os.RemoveAll(options.DataDir); err != nil {
		return err
	}
	return os.Rename(part, options.DataDir)
}

func (s *Server) launch(options Options) error {
	connections := options.MaxConnections
	if connections == 0 {
		connections = 200
	}
	cluster := filepath.Join(options.DataDir, "data")
	arguments := []string{"-D", cluster, "-p", strconv.Itoa(s.port),
		"-c", "listen_addresses=127.0.0.1",
		"-c", "unix_socket_directories=",
		"-c", "max_connections=" + strconv.Itoa(connections),
		"-c", "shared_buffers=128MB",
		"-c", "max_wal_size=1GB",
		"-c", "log_min_messages=warning",
	}
	if options.Throwaway {
		// Commits stay synchronous: without fsync they cost a write to the page cache, and a server that is killed takes back
		// none that was acknowledged. Whoever follows revisions would never see those again that are given twice.
		arguments = append(arguments, "-c", "fsync=off", "-c", "full_page_writes=off")
	}
	command := s.account.command(context.Background(), filepath.Join(s.bin, "postgres"), arguments...)
	command.Stdout, command.Stderr = options.Log, options.Log
	var err error
	// SIGQUIT is PostgreSQL's immediate shutdown: the postmaster takes its children with it.
	if s.process, err = spawn.Start(command, syscall.SIGQUIT); err != nil {
		return fmt.Errorf("starting PostgreSQL: %w", err)
	}
	return nil
}

func (s *Server) awaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for {
		ready := exec.CommandContext(ctx, filepath.Join(s.bin, "pg_isready"), "-q", "-h", "127.0.0.1", "-p", strconv.Itoa(s.port))
		if ready.Run() == nil {
			return nil
		}
		select {
		case <-s.process.Exited():
			return fmt.Errorf("PostgreSQL stopped while starting on port %d (is the port taken?): %v", s.port, s.process.Err())
		case <-ctx.Done():
			return fmt.Errorf("PostgreSQL did not accept connections on port %d: %w", s.port, ctx.Err())
		case <-ticker.C:
		}
	}
}

// Port is where the server listens on 127.0.0.1.
func (s *Server) Port() int { return s.port }

// Pid is the postmaster's process id.
func (s *Server) Pid() int { return s.process.PID() }

// Exited is closed when the server has ended.
func (s *Server) Exited() <-chan struct{} { return s.process.Exited() }

// URL connects to a database as its owner. It holds the password: keep it out of logs.
func (s *Server) URL(database string) string {
	u := url.URL{Scheme: "postgres", User: url.UserPassword(superuser, s.password), Path: "/" + database,
		Host: net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port)), RawQuery: "sslmode=disable"}
	return u.String()
}

// CreateDatabase makes a database, as a copy of template unless that is empty. One that exists already is left alone.
func (s *Server) CreateDatabase(ctx context.Context, name, template string) error {
	arguments := []string{"-h", "127.0.0.1", "-p", strconv.Itoa(s.port), "-U", superuser, "-w", "--maintenance-db=postgres"}
	if template != "" {
		arguments = append(arguments, "-T", template)
	}
	createdb := exec.CommandContext(ctx, filepath.Join(s.bin, "createdb"), append(arguments, name)...)
	createdb.Env = append(os.Environ(), "PGPASSWORD="+s.password, "LC_ALL=C")
	output, err := createdb.CombinedOutput()
	if err == nil || bytes.Contains(output, []byte("already exists")) {
		return nil
	}
	return fmt.Errorf("creating the database %s: %w: %s", name, err, lastLine(output))
}

// Stop asks for a fast shutdown, which rolls open transactions back, and waits for the end; when ctx is over it kills.
func (s *Server) Stop(ctx context.Context) {
	_ = s.process.Signal(syscall.SIGINT)
	select {
	case <-s.process.Exited():
	case <-ctx.Done():
		s.Kill()
	}
}

// Kill ends the server at once, as a crash would, and waits until it is gone.
func (s *Server) Kill() {
	_ = s.process.Signal(syscall.SIGQUIT)
	select {
	case <-s.process.Exited():
	case <-time.After(10 * time.Second):
		s.process.Kill()
	}
}

// account is whom the server runs as: PostgreSQL refuses to run as root.
type account struct {
	name string
	// credential is nil when the caller is not root and simply runs as itself.
	credential *syscall.Credential
}

func unprivilegedAccount() (*account, error) {
	if os.Geteuid() != 0 {
		return &account{name: "the current user"}, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		found, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, uidErr := strconv.ParseUint(found.Uid, 10, 32)
		gid, gidErr := strconv.ParseUint(found.Gid, 10, 32)
		if uidErr != nil || gidErr != nil {
			continue
		}
		return &account{name: name, credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}, nil
	}
	return nil, errors.New("PostgreSQL does not run as root, and there is no user postgres or nobody to run it as")
}

// command makes a command that runs as the account, in a folder that any account can enter.
func (a *account) command(ctx context.Context, path string, arguments ...string) *exec.Cmd {
	command := exec.CommandContext(ctx, path, arguments...)
	command.Dir = "/"
	command.Env = append(os.Environ(), "LC_ALL=C", "TZ=UTC")
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Credential: a.credential}
	return command
}

// own hands dir and all below it to the account.
func (a *account) own(dir string) error {
	if a.credential == nil {
		return nil
	}
	return filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Lchown(path, int(a.credential.Uid), int(a.credential.Gid))
	})
}

func freePort() (int, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer listener.Close()
	return listener.Addr().(*net.TCPAddr).Port, nil
}

func lastLine(output []byte) string {
	lines := strings.Split(strings.TrimSpace(string(output)), "\n")
	return lines[len(lines)-1]
}
