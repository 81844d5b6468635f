package process

import (
	"encoding/json"
	"net/http"
	"runtime"
	"runtime/debug"
	"time"
)

// Version is the body of /version: the program, its source and its start time.
type Version struct {
	Process string `json:"process"`
	// Revision is the commit that the program was built from, and Time the time of the commit. Modified means that the working
	// tree had further changes. They are empty if the build had no version control information.
	Revision string `json:"revision,omitempty"`
	Time     string `json:"time,omitempty"`
	Modified bool   `json:"modified,omitempty"`
	// Go is the version of the toolchain, and Module the version of the main module.
	Go        string    `json:"go"`
	Module    string    `json:"module,omitempty"`
	StartTime time.Time `json:"startTime"`
}

// Version returns the version of the running program.
func (p *Process) Version() Version {
	version := Version{Process: p.Name, Go: runtime.Version(), StartTime: p.started}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return version
	}
	version.Module = info.Main.Version
	for _, setting := range info.Settings {
		switch setting.Key {
		case "vcs.revision":
			version.Revision = setting.Value
		case "vcs.time":
			version.Time = setting.Value
		case "vcs.modified":
			version.Modified = setting.Value == "true"
		}
	}
	return version
}

func (p *Process) serveVersion(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(p.Version())
}
