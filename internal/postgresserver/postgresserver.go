// Package postgresserver runs PostgreSQL servers from the distribution's binaries, for the local region and for tests. It
// finds the binaries, creates a data directory, starts the server on the loopback interface as an unprivileged user, creates
// databases with their roles, and stops the server. With TLS it accepts no connection without TLS, and authenticates services by
// their client certificates.
package postgresserver

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
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

// superuser is the role that administers the server. No service has its password.
const superuser = "hcpmesh"

// startTimeout bounds the time until a server accepts connections, including crash recovery.
const startTimeout = 5 * time.Minute

// shutdownTimeout bounds an immediate shutdown; the postmaster is killed after it.
const shutdownTimeout = 10 * time.Second

// Options configure a server.
type Options struct {
	// DataDir holds the databases; Start creates it if it is absent. If the caller is root, Start changes its owner to the
	// unprivileged user, who needs search permission on the folders above it.
	DataDir string
	// Port on 127.0.0.1; 0 means a free one.
	Port int
	// Throwaway trades durability over a crash of the machine for speed. Data survives a crash of the server. For tests only.
	Throwaway bool
	// MaxConnections defaults to 200.
	MaxConnections int
	// TLS makes the server refuse connections without TLS; nil disables TLS.
	TLS *TLS
	// Databases are the databases that Provision creates. With TLS, only their roles and the superuser can connect.
	Databases []Database
	// Log receives the server's log; nil discards it.
	Log io.Writer
}

// Server is a running PostgreSQL server.
type Server struct {
	bin      string
	port     int
	password string
	account  *account
	process  *spawn.Process
	// tls are the files of Options.TLS, and accessDir is the folder of their copies; nil and empty without TLS.
	tls       *TLS
	accessDir string
	// caFile is the authority of the server's certificate; empty without TLS.
	caFile    string
	databases []Database
}

// ErrNotInstalled is the error if no PostgreSQL server is found.
var ErrNotInstalled = errors.New("PostgreSQL 15 or later was not found; install it (Debian: apt-get install postgresql) or put its bin folder on PATH")

// BinDir returns the folder of initdb and postgres: the newest version that the distribution installed, else the one on PATH.
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

// majorVersion returns the first number in a path, or 0.
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

// Start runs a server and returns when it accepts connections. The server terminates with this process.
func Start(ctx context.Context, options Options) (*Server, error) {
	bin, err := BinDir()
	if err != nil {
		return nil, err
	}
	unprivileged, err := unprivilegedAccount()
	if err != nil {
		return nil, err
	}
	server := &Server{bin: bin, account: unprivileged, port: options.Port, databases: options.Databases}
	for _, database := range options.Databases {
		if err := database.validate(); err != nil {
			return nil, err
		}
	}
	if err := server.initialize(ctx, options); err != nil {
		return nil, err
	}
	access, err := server.configureAccess(options)
	if err != nil {
		return nil, err
	}
	if server.port == 0 {
		port, err := spawn.ReservePort()
		if err != nil {
			return nil, err
		}
		defer port.Release() // the server listens on it
		server.port = port.Number
	}
	if err := server.launch(options, access); err != nil {
		return nil, err
	}
	if err := server.awaitReady(ctx); err != nil {
		server.Kill()
		return nil, err
	}
	return server, nil
}

// initialize creates the data directory unless a complete one exists. It creates a folder beside it and renames that at the
// end, so that a crash leaves no incomplete data directory.
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
		return fmt.Errorf("creating a PostgreSQL data directory in %s as user %s (who needs search permission on the folders above): %w: %s",
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

// launch starts the server with settings as arguments.
func (s *Server) launch(options Options, settings []string) error {
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
		// Commits stay synchronous: without fsync they cost a write to the page cache, and a killed server loses no acknowledged
		// commit. A lost commit would assign revisions twice, and a watcher would miss the second assignment.
		arguments = append(arguments, "-c", "fsync=off", "-c", "full_page_writes=off")
	}
	command := s.account.command(context.Background(), filepath.Join(s.bin, "postgres"), append(arguments, settings...)...)
	command.Stdout, command.Stderr = options.Log, options.Log
	var err error
	// SIGQUIT is PostgreSQL's immediate shutdown: the postmaster terminates its children too.
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
		if s.listens(ctx) && s.client(ctx, "pg_isready", "-q", "-d", maintenance).Run() == nil {
			return nil
		}
		select {
		case <-s.process.Exited():
			return fmt.Errorf("PostgreSQL terminated while starting on port %d (is the port in use?): %v", s.port, s.process.Err())
		case <-ctx.Done():
			return fmt.Errorf("PostgreSQL did not accept connections on port %d: %w", s.port, ctx.Err())
		case <-ticker.C:
		}
	}
}

// listens reports whether the port accepts connections, without the cost of a process.
func (s *Server) listens(ctx context.Context) bool {
	connection, err := s.dial(ctx)
	if err != nil {
		return false
	}
	_ = connection.Close()
	return true
}

func (s *Server) dial(ctx context.Context) (net.Conn, error) {
	return new(net.Dialer).DialContext(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port)))
}

// Port returns the TCP port of the server on 127.0.0.1.
func (s *Server) Port() int { return s.port }

// Pid returns the process ID of the postmaster.
func (s *Server) Pid() int { return s.process.PID() }

// Exited returns a channel that is closed when the server has terminated.
func (s *Server) Exited() <-chan struct{} { return s.process.Exited() }

// Err waits until the server has terminated and returns the result, like Wait of exec.Cmd.
func (s *Server) Err() error { return s.process.Err() }

// clientTimeout bounds the programs of Ready and Live, which must terminate by themselves if this process is killed.
const clientTimeout = 10 * time.Second

// Ready returns why the server does not commit transactions, or nil if it does. It opens a connection and commits a transaction
// that writes to the log, so that it fails if the server is hung or cannot write.
func (s *Server) Ready(ctx context.Context) error {
	output, err := s.client(ctx, "psql", "-X", "-q", "-A", "-t", "-w", "-d", maintenance, "-c", "SELECT pg_current_xact_id()").CombinedOutput()
	if err != nil {
		if ctx.Err() != nil {
			return fmt.Errorf("committing a transaction: %w", ctx.Err())
		}
		return fmt.Errorf("committing a transaction: %w: %s", err, lastLine(output))
	}
	return nil
}

// Live returns an error if the server does not respond to a connection. A server that rejects connections while it starts or
// recovers responds.
func (s *Server) Live(ctx context.Context) error {
	const rejects = 1 // pg_isready(1)
	err := s.client(ctx, "pg_isready", "-q", "-d", maintenance, "-t", strconv.Itoa(int(clientTimeout/time.Second))).Run()
	var exit *exec.ExitError
	if err == nil || errors.As(err, &exit) && exit.ExitCode() == rejects {
		return nil
	}
	return errors.New("does not respond")
}

// client returns a command of one of PostgreSQL's client programs as the superuser.
func (s *Server) client(ctx context.Context, program string, arguments ...string) *exec.Cmd {
	command := exec.CommandContext(ctx, filepath.Join(s.bin, program), append([]string{"-h", "127.0.0.1", "-p", strconv.Itoa(s.port), "-U", superuser}, arguments...)...)
	command.Env = append(os.Environ(), "PGPASSWORD="+s.password, "LC_ALL=C", "PGCONNECT_TIMEOUT="+strconv.Itoa(int(clientTimeout/time.Second)))
	if s.caFile != "" {
		command.Env = append(command.Env, "PGSSLMODE=verify-full", "PGSSLROOTCERT="+s.caFile)
	}
	return command
}

// Stop requests a fast shutdown, which rolls back open transactions, and waits for it. It kills the server when ctx ends first.
func (s *Server) Stop(ctx context.Context) {
	_ = s.process.Signal(syscall.SIGINT)
	select {
	case <-s.process.Exited():
	case <-ctx.Done():
		s.Kill()
	}
}

// Kill terminates the server at once, like a crash, and waits until it has exited.
func (s *Server) Kill() {
	_ = s.process.Signal(syscall.SIGQUIT)
	timer := time.AfterFunc(shutdownTimeout, s.process.Kill)
	defer timer.Stop()
	<-s.process.Exited()
}

// account is the system user that runs the server: PostgreSQL refuses to run as root.
type account struct {
	name string
	// credential is nil if the caller is not root; then the server runs as the caller.
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
	return nil, errors.New("PostgreSQL refuses to run as root, and the system has no user postgres or nobody")
}

// command returns a command that runs as the account, in a folder that every account can enter.
func (a *account) command(ctx context.Context, path string, arguments ...string) *exec.Cmd {
	command := exec.CommandContext(ctx, path, arguments...)
	command.Dir = "/"
	command.Env = append(os.Environ(), "LC_ALL=C", "TZ=UTC")
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Credential: a.credential}
	return command
}

// own changes the owner of dir and everything below it to the account.
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

func lastLine(output []byte) string {
	lines := strings.Split(strings.TrimSpace(string(output)), "\n")
	return lines[len(lines)-1]
}
