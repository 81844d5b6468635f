package assemble

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Revision is the state of some files of a repository.
type Revision struct {
	// Commit is the newest commit that changed the files, and Time its time.
	Commit string
	Time   time.Time
	// Uncommitted means that the working tree has further changes of the files.
	Uncommitted bool
}

// Version returns a version in the form of Go's pseudo-versions: v0.0.0-TIME-COMMIT, with +uncommitted for further changes.
func (r Revision) Version() string {
	version := fmt.Sprintf("v0.0.0-%s-%.12s", r.Time.UTC().Format("20060102150405"), r.Commit)
	if r.Uncommitted {
		version += "+uncommitted"
	}
	return version
}

// Repository is a Git working tree with a Go module.
type Repository struct {
	root string
	// sources are the pathspecs of the files from which each main package is built.
	sources map[string][]string
}

// OpenRepository reads which packages the main packages need. packages have the form ./FOLDER. A shallow clone is refused, because its oldest
// commits are not those that changed the files.
func OpenRepository(ctx context.Context, root string, packages []string) (*Repository, error) {
	r := &Repository{root: root, sources: map[string][]string{}}
	switch shallow, err := r.run(ctx, "git", "rev-parse", "--is-shallow-repository"); {
	case err != nil:
		return nil, err
	case shallow == "true":
		return nil, errors.New("the clone is shallow, so the commits that changed files are not known: run git fetch --unshallow")
	}
	return r, r.readPackages(ctx, packages)
}

// readPackages fills sources.
func (r *Repository) readPackages(ctx context.Context, packages []string) error {
	if len(packages) == 0 {
		return nil
	}
	const format = "{{if not .Standard}}{{.ImportPath}}\t{{.Dir}}\t{{.Name}}\t{{range .EmbedFiles}}{{.}} {{end}}\t{{range .Deps}}{{.}} {{end}}{{end}}"
	output, err := r.run(ctx, "go", append([]string{"list", "-deps", "-f", format}, packages...)...)
	if err != nil {
		return err
	}
	files, mains := map[string][]string{}, map[string][]string{}
	for line := range strings.Lines(output) {
		fields := strings.SplitN(strings.TrimSuffix(line, "\n"), "\t", 5)
		if len(fields) != 5 {
			continue
		}
		dir, err := filepath.Rel(r.root, fields[1])
		if err != nil || strings.HasPrefix(dir, "..") {
			continue // a package of another repository; go.mod has its version
		}
		files[fields[0]] = pathspecs(filepath.ToSlash(dir), strings.Fields(fields[3]))
		if fields[2] == "main" {
			mains["./"+filepath.ToSlash(dir)] = append(strings.Fields(fields[4]), fields[0])
		}
	}
	for _, pkg := range packages {
		if mains[pkg] == nil {
			return fmt.Errorf("%s is not a main package", pkg)
		}
		for _, path := range mains[pkg] {
			r.sources[pkg] = append(r.sources[pkg], files[path]...)
		}
	}
	return nil
}

// pathspecs returns the files in the folder of a package and in the folders of its embedded files. Folders, and not only files, because a
// deletion is a change too.
func pathspecs(dir string, embedded []string) []string {
	found := []string{":(glob)" + dir + "/*"}
	for _, file := range embedded {
		found = append(found, ":(glob)"+path.Join(dir, path.Dir(file))+"/*")
	}
	return found
}

// Of returns the revision of the sources of main packages and of additional files or folders. Both are relative to the root. Tests are not
// sources.
func (r *Repository) Of(ctx context.Context, packages, files []string) (Revision, error) {
	paths := slices.Clone(files)
	for _, pkg := range packages {
		if r.sources[pkg] == nil {
			return Revision{}, fmt.Errorf("%s was not opened", pkg)
		}
		paths = append(paths, r.sources[pkg]...)
	}
	if len(packages) > 0 {
		paths = append(paths, "go.mod", "go.sum") // the versions of modules
	}
	slices.Sort(paths)
	paths = append(slices.Compact(paths), ":(exclude,glob)**/*_test.go")
	newest, err := r.run(ctx, "git", append([]string{"log", "-1", "--format=%H %ct", "--"}, paths...)...)
	if err != nil {
		return Revision{}, err
	}
	var revision Revision
	var seconds int64
	if _, err := fmt.Sscanf(newest, "%s %d", &revision.Commit, &seconds); err != nil {
		return Revision{}, fmt.Errorf("no commit has %v", paths)
	}
	revision.Time = time.Unix(seconds, 0).UTC()
	changes, err := r.run(ctx, "git", append([]string{"status", "--porcelain", "--"}, paths...)...)
	revision.Uncommitted = changes != ""
	return revision, err
}

// run returns the output of a command in the root.
func (r *Repository) run(ctx context.Context, name string, arguments ...string) (string, error) {
	command := exec.CommandContext(ctx, name, arguments...)
	command.Dir = r.root
	var problem bytes.Buffer
	command.Stderr = &problem
	output, err := command.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w: %s", name, arguments[0], err, strings.TrimSpace(problem.String()))
	}
	return strings.TrimSpace(string(output)), nil
}
