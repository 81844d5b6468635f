package skew

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/hcpmesh/hcpmesh/dev-infrastructure/local"
	"github.com/hcpmesh/hcpmesh/internal/postgresserver"
)

// dump writes the statements that create and fill a database. Every program psql of a supported release executes them.
func dump(ctx context.Context, stores local.Endpoints, database string, into io.Writer) error {
	var statements bytes.Buffer
	if err := runClient(ctx, stores, database, nil, &statements, "pg_dump", "--no-password"); err != nil {
		return err
	}
	lines := bufio.NewReader(&statements)
	for {
		line, err := lines.ReadString('\n')
		// Newer releases of pg_dump write commands that older ones of psql do not have. They protect from a hostile server.
		if !strings.HasPrefix(line, `\restrict `) && !strings.HasPrefix(line, `\unrestrict `) {
			if _, err := io.WriteString(into, line); err != nil {
				return err
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// loadDump executes the statements of a dump. It changes nothing if one of them fails.
func loadDump(ctx context.Context, stores local.Endpoints, database string, statements io.Reader) error {
	return runClient(ctx, stores, database, statements, io.Discard, "psql", "-X", "-q", "-w", "-1", "-v", "ON_ERROR_STOP=1")
}

// runClient runs a program of PostgreSQL as the superuser. The password is not an argument, which other processes can read.
func runClient(ctx context.Context, stores local.Endpoints, database string, input io.Reader, output io.Writer, program string, arguments ...string) error {
	dir, err := postgresserver.BinDir()
	if err != nil {
		return err
	}
	text, err := os.ReadFile(stores.AdministratorURLFile)
	if err != nil {
		return err
	}
	server, err := url.Parse(strings.TrimSpace(string(text)))
	if err != nil {
		return fmt.Errorf("%s is not a URL", stores.AdministratorURLFile)
	}
	password, _ := server.User.Password()
	command := exec.CommandContext(ctx, filepath.Join(dir, program), arguments...)
	command.Env = append(os.Environ(), "PGHOST="+server.Hostname(), "PGPORT="+server.Port(), "PGUSER="+server.User.Username(), "PGPASSWORD="+password,
		"PGDATABASE="+database, "PGSSLMODE="+server.Query().Get("sslmode"), "PGSSLROOTCERT="+server.Query().Get("sslrootcert"))
	var problems bytes.Buffer
	command.Stdin, command.Stdout, command.Stderr = input, output, &problems
	if err := command.Run(); err != nil {
		return fmt.Errorf("%s: %w: %s", program, err, bytes.TrimSpace(problems.Bytes()))
	}
	return nil
}
