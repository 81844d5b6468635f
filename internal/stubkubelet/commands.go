package stubkubelet

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"
)

// now returns the time of changed files.
func (p *process) now() time.Time { return time.Now() }

func exitWith(status int) command {
	return func(context.Context, *process, []string) int { return status }
}

// print writes text, and returns the exit status of a command that has only this to do.
func (p *process) print(text string) int {
	if _, err := io.WriteString(p.out, text); err != nil {
		p.complain("write error: %v", err)
		return 1
	}
	return 0
}

func cat(_ context.Context, p *process, arguments []string) int {
	if len(arguments) == 0 {
		arguments = []string{"-"}
	}
	status := 0
	for _, name := range arguments {
		if name == "-" {
			if _, err := io.Copy(p.out, p.in); err != nil {
				p.complain("cat: %v", err)
				return 1
			}
			continue
		}
		content, err := p.files.read(p.path(name))
		if err != nil {
			p.complain("cat: %s: %v", name, err)
			status = 1
			continue
		}
		if _, err := p.out.Write(content); err != nil {
			p.complain("cat: %v", err)
			return 1
		}
	}
	return status
}

func changeFolder(_ context.Context, p *process, arguments []string) int {
	target := p.environment["HOME"]
	if len(arguments) > 0 {
		target = arguments[0]
	}
	found, err := p.files.stat(p.path(target))
	if err == nil && !found.folder {
		err = errNotFolder
	}
	if err != nil {
		p.complain("cd: %s: %v", target, err)
		return 1
	}
	p.folder = p.path(target)
	return 0
}

func echo(_ context.Context, p *process, arguments []string) int {
	end := "\n"
	if len(arguments) > 0 && arguments[0] == "-n" {
		arguments, end = arguments[1:], ""
	}
	return p.print(strings.Join(arguments, " ") + end)
}

func printEnvironment(_ context.Context, p *process, arguments []string) int {
	if len(arguments) > 0 {
		p.complain("env: the simulated command has no arguments")
		return statusMisuse
	}
	var text strings.Builder
	for _, name := range slices.Sorted(maps.Keys(p.environment)) {
		text.WriteString(name + "=" + p.environment[name] + "\n")
	}
	return p.print(text.String())
}

func hostname(_ context.Context, p *process, _ []string) int {
	return p.print(p.stream.object.Name + "\n")
}
func printFolder(_ context.Context, p *process, _ []string) int { return p.print(p.folder + "\n") }

func list(_ context.Context, p *process, arguments []string) int {
	long := false
	var names []string
	for _, argument := range arguments {
		switch {
		case argument == "-l" || argument == "-la" || argument == "-al":
			long = true
		case argument == "-a" || argument == "-1":
		case strings.HasPrefix(argument, "-"):
			p.complain("ls: the simulated command has only the options -1, -a and -l, not %s", argument)
			return statusMisuse
		default:
			names = append(names, argument)
		}
	}
	if len(names) == 0 {
		names = []string{p.folder}
	}
	status := 0
	for _, name := range names {
		found, err := p.files.stat(p.path(name))
		if err != nil {
			p.complain("ls: %s: %v", name, err)
			status = 1
			continue
		}
		shown := []string{p.path(name)}
		if found.folder {
			shown = p.files.below(p.path(name), false)
		}
		for _, file := range shown {
			label := path.Base(file)
			if !found.folder {
				label = name
			}
			if long {
				item, err := p.files.stat(file)
				if err != nil {
					continue // it was removed meanwhile
				}
				kind := "-"
				if item.folder {
					kind = "d"
				}
				label = fmt.Sprintf("%s%s 1 root root %8d %s %s", kind, item.mode.String()[1:], len(item.content), item.time.UTC().Format("2006-01-02 15:04"), label)
			}
			if p.print(label+"\n") != 0 {
				return 1
			}
		}
	}
	return status
}

func makeFolder(_ context.Context, p *process, arguments []string) int {
	parents, status := false, 0
	for _, name := range arguments {
		if name == "-p" {
			parents = true
			continue
		}
		create := p.files.mkdir
		if parents {
			create = p.files.mkdirAll
		}
		if err := create(p.path(name), 0o755, p.now()); err != nil {
			p.complain("mkdir: %s: %v", name, err)
			status = 1
		}
	}
	return status
}

func remove(_ context.Context, p *process, arguments []string) int {
	recursive, force, status := false, false, 0
	for _, name := range arguments {
		switch name {
		case "-r", "-R":
			recursive = true
			continue
		case "-f":
			force = true
			continue
		case "-rf", "-fr":
			recursive, force = true, true
			continue
		}
		if err := p.files.remove(p.path(name), recursive); err != nil && (!force || !errors.Is(err, errNotFound)) {
			p.complain("rm: %s: %v", name, err)
			status = 1
		}
	}
	return status
}

// sleep waits for a number of seconds. It ends with the stream, so a stream without data ends it after the idle timeout.
func sleep(ctx context.Context, p *process, arguments []string) int {
	if len(arguments) != 1 {
		p.complain("sleep: a number of seconds is required")
		return statusMisuse
	}
	seconds, err := strconv.ParseFloat(strings.TrimSuffix(arguments[0], "s"), 64)
	if err != nil || seconds < 0 || seconds > 1e6 {
		p.complain("sleep: %s is not a number of seconds", arguments[0])
		return statusMisuse
	}
	timer := time.NewTimer(time.Duration(seconds * float64(time.Second)))
	defer timer.Stop()
	select {
	case <-timer.C:
		return 0
	case <-ctx.Done():
		return killed
	}
}

// terminalSettings prints the rows and columns of the terminal.
func terminalSettings(ctx context.Context, p *process, arguments []string) int {
	if !slices.Equal(arguments, []string{"size"}) {
		p.complain("stty: the simulated command has only the argument size")
		return statusMisuse
	}
	if !p.tty {
		p.complain("stty: standard input is not a terminal")
		return 1
	}
	size, err := p.size.wait(ctx)
	if err != nil {
		return killed
	}
	return p.print(fmt.Sprintf("%d %d\n", size.Height, size.Width))
}

// evaluate runs test with one of the operators -d, -e and -f.
func evaluate(_ context.Context, p *process, arguments []string) int {
	if len(arguments) != 2 || !slices.Contains([]string{"-d", "-e", "-f"}, arguments[0]) {
		p.complain("test: the simulated command has only -d, -e and -f with a name")
		return statusMisuse
	}
	found, err := p.files.stat(p.path(arguments[1]))
	if err != nil || arguments[0] == "-d" && !found.folder || arguments[0] == "-f" && found.folder {
		return 1
	}
	return 0
}

// archive runs tar, which kubectl cp needs: with c or x, and an archive that is standard input or output.
func archive(_ context.Context, p *process, arguments []string) int {
	var create, extract, toStream bool
	folder := p.folder
	var names []string
	for i := 0; i < len(arguments); i++ {
		argument := arguments[i]
		switch {
		case argument == "--no-same-permissions" || argument == "--no-same-owner":
		case argument == "-C":
			if i++; i == len(arguments) {
				p.complain("tar: a folder is missing after -C")
				return statusMisuse
			}
			folder = p.path(arguments[i])
		case i == 0 || strings.HasPrefix(argument, "-") && argument != "-":
			for _, option := range strings.TrimPrefix(argument, "-") {
				switch option {
				case 'c':
					create = true
				case 'x':
					extract = true
				case 'f':
					if i++; i == len(arguments) || arguments[i] != "-" {
						p.complain("tar: the simulated command reads and writes archives only as -")
						return statusMisuse
					}
					toStream = true
				case 'm', 'p', 'o':
				default:
					p.complain("tar: option %c is not simulated", option)
					return statusMisuse
				}
			}
		default:
			names = append(names, argument)
		}
	}
	var err error
	switch {
	case create == extract || !toStream:
		p.complain("tar: one of c and x is required, and f -")
		return statusMisuse
	case extract && len(names) > 0:
		p.complain("tar: the simulated command extracts whole archives only")
		return statusMisuse
	case extract:
		err = p.extract(folder)
	default:
		err = p.pack(folder, names)
	}
	if err != nil {
		p.complain("tar: %v", err)
		return statusMisuse
	}
	return 0
}

// extract reads an archive into a folder. No name leads out of the folder.
func (p *process) extract(folder string) error {
	found, err := p.files.stat(folder)
	if err == nil && !found.folder {
		err = errNotFolder
	}
	if err != nil {
		return fmt.Errorf("%s: %w", folder, err)
	}
	for reader := tar.NewReader(p.in); ; {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			// The client sends padding after the end of the archive.
			_, err := io.Copy(io.Discard, p.in)
			return err
		}
		if err != nil {
			return err
		}
		target := path.Join(folder, path.Clean("/"+header.Name))
		mode := header.FileInfo().Mode()
		switch header.Typeflag {
		case tar.TypeDir:
			err = p.files.mkdirAll(target, mode, p.now())
		case tar.TypeReg:
			if header.Size > MaxFileBytes {
				err = errNoSpace
				break
			}
			var content []byte
			if content, err = io.ReadAll(io.LimitReader(reader, MaxFileBytes)); err != nil {
				break
			}
			if err = p.files.mkdirAll(path.Dir(target), 0o755, p.now()); err == nil {
				err = p.files.write(target, content, mode, p.now())
			}
		case tar.TypeXGlobalHeader:
		default:
			err = errors.New("only files and folders are simulated, not links and devices")
		}
		if err != nil {
			return fmt.Errorf("%s: %w", header.Name, err)
		}
	}
}

// pack writes an archive of files and folders. As in other tars, names in it have no leading slash.
func (p *process) pack(folder string, names []string) error {
	if len(names) == 0 {
		return errors.New("no names of files")
	}
	writer := tar.NewWriter(p.out)
	for _, name := range names {
		base := name
		if !path.IsAbs(name) {
			base = path.Join(folder, name)
		}
		base = path.Clean(base)
		if _, err := p.files.stat(base); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		for _, file := range append([]string{base}, p.files.below(base, true)...) {
			item, err := p.files.stat(file)
			if err != nil {
				continue // it was removed meanwhile
			}
			header := &tar.Header{Name: strings.TrimPrefix(path.Clean(name)+strings.TrimPrefix(file, strings.TrimSuffix(base, "/")), "/"),
				Typeflag: tar.TypeReg, Mode: int64(item.mode), Size: int64(len(item.content)), ModTime: item.time}
			if item.folder {
				header.Typeflag, header.Name = tar.TypeDir, header.Name+"/"
			}
			if err := writer.WriteHeader(header); err != nil {
				return err
			}
			if _, err := writer.Write(item.content); err != nil && !item.folder {
				return err
			}
		}
	}
	return writer.Close()
}
