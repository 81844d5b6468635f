package local

import (
	"path/filepath"
	"strings"

	"github.com/hcpmesh/hcpmesh/internal/disk"
)

// dataDirs returns the folders with the region's data: the state folder, and that of PostgreSQL if it is elsewhere.
func (r *Region) dataDirs() []string {
	dirs := []string{r.state.dir}
	if postgres := filepath.Dir(r.state.record.PostgresDir); !strings.HasPrefix(postgres+"/", r.state.dir+"/") {
		dirs = append(dirs, postgres)
	}
	return dirs
}

// disks returns the space of the disks that contain dirs. A disk also counts as full while a process with data in the folder reports
// a full disk: a database that starts on a full disk removes files and allocates them again, so that some space is free for a moment.
func disks(dirs []string, processes []ProcessStatus) []disk.Space {
	var spaces []disk.Space
	for _, dir := range dirs {
		space, err := disk.SpaceOf(dir)
		if err != nil {
			continue
		}
		for _, p := range processes {
			space.Full = space.Full || p.DiskFull() && strings.HasPrefix(p.DataDir+"/", dir+"/")
		}
		spaces = append(spaces, space)
	}
	return spaces
}
