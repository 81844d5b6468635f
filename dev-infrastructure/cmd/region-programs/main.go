// Command region-programs has the programs of a local region in one file, because twenty links of the same packages take longer than
// one. The name by which it is started selects the program; so does the first argument. In a deployment each program has its own file
// and image.
//
//	region-programs links FOLDER     write a link to this file for each program into a folder
//	region-programs frontend --help  run a program
package main

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	admin "github.com/hcpmesh/hcpmesh/admin/pkg/app"
	backend "github.com/hcpmesh/hcpmesh/backend/pkg/app"
	clusterservice "github.com/hcpmesh/hcpmesh/cluster-service/pkg/app"
	frontend "github.com/hcpmesh/hcpmesh/frontend/pkg/app"
	gatewayaccess "github.com/hcpmesh/hcpmesh/gateway/pkg/app"
	gatewayegress "github.com/hcpmesh/hcpmesh/gateway/pkg/egress"
	gatewaygrants "github.com/hcpmesh/hcpmesh/gateway/pkg/grant"
	gatewaytunnel "github.com/hcpmesh/hcpmesh/gateway/pkg/tunnel/agent"
	hypershiftruntime "github.com/hcpmesh/hcpmesh/hypershift/pkg/app"
	"github.com/hcpmesh/hcpmesh/hypershift/pkg/egress"
	"github.com/hcpmesh/hcpmesh/hypershift/pkg/logforwarder"
	maestroagent "github.com/hcpmesh/hcpmesh/maestro/agent"
	maestroserver "github.com/hcpmesh/hcpmesh/maestro/pkg/app"
	monitor "github.com/hcpmesh/hcpmesh/monitor/pkg/app"
	monitorinside "github.com/hcpmesh/hcpmesh/monitor/pkg/inside"
	armfrontdoor "github.com/hcpmesh/hcpmesh/tooling/arm-frontdoor/pkg/frontdoor"
	azureemulator "github.com/hcpmesh/hcpmesh/tooling/azure-emulator/pkg/emulator"
	cosmosemulator "github.com/hcpmesh/hcpmesh/tooling/cosmos-emulator/pkg/emulator"
	eventgridemulator "github.com/hcpmesh/hcpmesh/tooling/eventgrid-emulator/pkg/broker"
	managementaudit "github.com/hcpmesh/hcpmesh/tooling/management-audit/pkg/app"
	tracestore "github.com/hcpmesh/hcpmesh/tooling/trace-store/pkg/server"
	updategraph "github.com/hcpmesh/hcpmesh/tooling/update-graph/pkg/graph"
)

// programs returns the functions that run the programs of a region, by the programs' names.
func programs() map[string]func() {
	return map[string]func(){
		"admin":              admin.Main,
		"arm-frontdoor":      armfrontdoor.Main,
		"azure-emulator":     azureemulator.Main,
		"backend":            backend.Main,
		"cluster-service":    clusterservice.Main,
		"cosmos-emulator":    cosmosemulator.Main,
		"egress-proxy":       egress.Main,
		"eventgrid-emulator": eventgridemulator.Main,
		"frontend":           frontend.Main,
		"gateway-access":     gatewayaccess.Main,
		"gateway-egress":     gatewayegress.Main,
		"gateway-grants":     gatewaygrants.Main,
		"gateway-tunnel":     gatewaytunnel.Main,
		"hypershift-runtime": hypershiftruntime.Main,
		"log-forwarder":      logforwarder.Main,
		"maestro-agent":      maestroagent.Main,
		"maestro-server":     maestroserver.Main,
		"management-audit":   managementaudit.Main,
		"monitor":            monitor.Main,
		"monitor-inside":     monitorinside.Main,
		"trace-store":        tracestore.Main,
		"update-graph":       updategraph.Main,
	}
}

func main() {
	known := programs()
	if run, ok := known[filepath.Base(os.Args[0])]; ok {
		run()
		return
	}
	var err error
	switch {
	case len(os.Args) == 3 && os.Args[1] == "links":
		err = writeLinks(os.Args[2], known)
	case len(os.Args) > 1 && known[os.Args[1]] != nil:
		os.Args = os.Args[1:]
		known[os.Args[0]]()
		return
	default:
		err = fmt.Errorf("usage: region-programs links FOLDER | PROGRAM [flag ...]; the programs are %s", strings.Join(slices.Sorted(maps.Keys(known)), ", "))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "region-programs: "+err.Error())
		os.Exit(2)
	}
}

// writeLinks replaces the files with the names of the programs in a folder by links to this program. Processes of a region that another
// checkout starts at the same moment always find a file.
func writeLinks(folder string, known map[string]func()) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	folder, err = filepath.Abs(folder)
	if err != nil {
		return err
	}
	target, err := filepath.Rel(folder, self)
	if err != nil {
		return err
	}
	for name := range known {
		link := filepath.Join(folder, name)
		if current, err := os.Readlink(link); err == nil && current == target {
			continue
		}
		prepared := fmt.Sprintf("%s.%d", link, os.Getpid())
		if err := os.Symlink(target, prepared); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		if err := os.Rename(prepared, link); err != nil {
			return err
		}
	}
	return nil
}
