package skew

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"
)

// omitted are the files and folders of a state folder that a snapshot does not contain: data that is saved in other files, and what a start of
// the region writes.
var omitted = map[string]bool{
	"postgres": true, "etcd": true,
	"logs": true, "profiling": true, "lock": true, "region.json": true, "control.sock": true,
	"identities": true, "releases": true, "components.yaml": true, "cosmos-account.json": true, "cluster-service.yaml": true,
}

// pack writes the regular files of a state folder as an archive, in the order of their names and without times and owners.
func pack(dir string, into io.Writer) error {
	archive := tar.NewWriter(into)
	source := os.DirFS(dir)
	err := fs.WalkDir(source, ".", func(name string, found fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case omitted[name] && found.IsDir():
			return fs.SkipDir
		case omitted[name] || !found.Type().IsRegular() || generated(name):
			return nil
		}
		info, err := found.Info()
		if err != nil {
			return err
		}
		content, err := fs.ReadFile(source, name)
		if err != nil {
			return err
		}
		if err := archive.WriteHeader(&tar.Header{Name: name, Mode: int64(info.Mode().Perm()), Size: int64(len(content)), ModTime: time.Unix(0, 0), Format: tar.FormatUSTAR}); err != nil {
			return err
		}
		_, err = archive.Write(content)
		return err
	})
	return errors.Join(err, archive.Close())
}

// generated reports whether a file is one that the processes of a region write when they start: logs, IDs of processes, kubeconfigs, URLs of
// databases, and the configuration of the egress proxy, which contains the path of the state folder.
func generated(name string) bool {
	folder, file := path.Split(name)
	switch path.Ext(file) {
	case ".log", ".part":
		return true
	case ".kubeconfig":
		return strings.HasPrefix(folder, "management/")
	case ".url":
		return folder == "secrets/"
	}
	return strings.HasPrefix(folder, "hosted/") && (file == "pid" || file == "egress.json")
}

// unpack creates the files of an archive in a folder.
func unpack(from io.Reader, dir string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	for archive := tar.NewReader(from); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if header.Typeflag != tar.TypeReg {
			return fmt.Errorf("%s is not a file", header.Name)
		}
		if parent := path.Dir(header.Name); parent != "." {
			if err := root.MkdirAll(filepath.FromSlash(parent), 0o700); err != nil {
				return err
			}
		}
		content, err := io.ReadAll(archive)
		if err != nil {
			return err
		}
		if err := root.WriteFile(filepath.FromSlash(header.Name), content, fs.FileMode(header.Mode).Perm()); err != nil {
			return err
		}
	}
}
