// Command supplychain shows what the programs are made of. `make release` and `make vulnerabilities` run it.
//
//	supplychain release -into DIR PACKAGE...
//	supplychain vulnerabilities -govulncheck FILE [-database URL] PACKAGE...
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/hcpmesh/hcpmesh/tooling/supplychain/pkg/supplychain"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "supplychain:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, arguments []string) error {
	if len(arguments) == 0 {
		return errors.New("want a command: release or vulnerabilities")
	}
	flags := flag.NewFlagSet("supplychain "+arguments[0], flag.ExitOnError)
	switch arguments[0] {
	case "release":
		into := flags.String("into", "", "`folder` for the programs, their bills of materials and the provenance")
		_ = flags.Parse(arguments[1:])
		if *into == "" || flags.NArg() == 0 {
			return errors.New("release needs -into and packages")
		}
		return release(ctx, *into, flags.Args())
	case "vulnerabilities":
		database := flags.String("database", "", "`URL` of the vulnerability database; empty means https://vuln.go.dev, and the check is skipped while that cannot be reached")
		govulncheck := flags.String("govulncheck", "", "`file` of govulncheck")
		_ = flags.Parse(arguments[1:])
		if *govulncheck == "" || flags.NArg() == 0 {
			return errors.New("vulnerabilities needs -govulncheck and packages")
		}
		return vulnerabilities(ctx, *govulncheck, *database, flags.Args())
	}
	return fmt.Errorf("unknown command %q; want release or vulnerabilities", arguments[0])
}

// release builds packages of a commit twice and stores the programs with their bills of materials and provenance.
func release(ctx context.Context, into string, packages []string) error {
	changed, err := git(ctx, "status", "--porcelain")
	if err != nil {
		return err
	}
	if changed != "" {
		return fmt.Errorf("the provenance names a commit; commit or remove these changes:\n%s", changed)
	}
	commit, err := git(ctx, "rev-parse", "HEAD")
	if err != nil {
		return err
	}
	programs, err := supplychain.BuildTwice(ctx, supplychain.BuildOptions{Source: ".", Flags: supplychain.BuildFlags()}, filepath.Join(into, "bin"), packages...)
	if err != nil {
		return err
	}
	for _, program := range programs {
		bill, err := supplychain.BillOf(supplychain.Subject{Name: program.Name, Path: program.Path, SHA256: program.SHA256, Version: commit})
		if err != nil {
			return err
		}
		var text bytes.Buffer
		if err := supplychain.WriteBill(&text, bill); err != nil {
			return err
		}
		if err := store(filepath.Join(into, "sbom", program.Name+".cdx.json"), text.Bytes()); err != nil {
			return err
		}
		fmt.Printf("%s  %s\n", program.SHA256, program.Path)
	}
	statement, err := supplychain.ProvenanceOf(commit, programs)
	if err != nil {
		return err
	}
	return store(filepath.Join(into, "provenance.json"), statement)
}

func store(path string, text []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, text, 0o644)
}

// vulnerabilities checks packages with a database.
func vulnerabilities(ctx context.Context, govulncheck, database string, packages []string) error {
	if database == "" {
		database = supplychain.PublicDatabase
		if err := supplychain.ReachDatabase(ctx, database); err != nil {
			fmt.Printf("vulnerabilities: skipped: the database cannot be reached: %v\n", err)
			return nil
		}
	}
	if err := supplychain.ReachDatabase(ctx, database); err != nil {
		return fmt.Errorf("the database cannot be read: %w", err)
	}
	return supplychain.CheckVulnerabilities(ctx, govulncheck, database, ".", packages, os.Stdout)
}

// git returns the output of a Git command.
func git(ctx context.Context, arguments ...string) (string, error) {
	output, err := exec.CommandContext(ctx, "git", arguments...).Output()
	if err != nil {
		return "", fmt.Errorf("git %s: %w", strings.Join(arguments, " "), err)
	}
	return strings.TrimSpace(string(output)), nil
}
