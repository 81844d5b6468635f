package process

import (
	"encoding/json"
	"net/http"
	"runtime"
	"runtime/debug"
	"time"
)

// Version is the body of /version: which program answers, of which source, and since when it runs.
type Version struct {
	Process string `json:"process"`
	// Revision is the commit that it was built from, and Time that of the commit; Modified says that more than the commit
	// was built. They are empty where the build did not know.
	Revision string `json:"revision,omitempty"`
	Time     string `json:"time,omitempty"`
	Modified bool   `json:"modified,omitempty"`
	// Go is the toolchain's version, and Module that of the program's module.
	Go        string    `json:"go"`
	Module    string    `json:"module,omitempty"`
	StartTime time.Time `json:"startTime"`
}

// Version is the running program's.
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
