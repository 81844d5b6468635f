package gather

import (
	"fmt"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
)

// Layers returns the files of a dump: one for each list or object of a layer, and one for each Maestro bundle.
func Layers(dump *adminv1.Dump) (map[string]any, error) {
	decoded, err := plain(dump)
	if err != nil {
		return nil, err
	}
	layers, _ := decoded.(map[string]any)
	files := map[string]any{"cluster.yaml": layers["cluster"]}
	for key, folder := range map[string]string{"arm": "arm", "clusterService": "cluster-service", "maestro": "maestro", "monitor": "monitor"} {
		parts, _ := layers[key].(map[string]any)
		for name, content := range parts {
			if name == "bundles" {
				continue
			}
			files[folder+"/"+name+".yaml"] = content
		}
	}
	if dump.Maestro != nil {
		for i, bundle := range dump.Maestro.Bundles {
			name := bundle.Name
			if name == "" {
				name = fmt.Sprintf("%d-%s", i, bundle.ID)
			}
			files["maestro/"+fileName(name)+".yaml"] = bundle
		}
	}
	return files, nil
}

// Needles returns the identifiers by which log lines name a cluster, its children and its operations.
func Needles(dump *adminv1.Dump) []string {
	needles := []string{dump.Cluster.ResourceID, dump.Cluster.UID, dump.Cluster.ClusterID}
	if arm := dump.ARM; arm != nil {
		for _, p := range arm.NodePools {
			needles = append(needles, p.UID)
		}
		for _, a := range arm.ExternalAuths {
			needles = append(needles, a.UID)
		}
		for _, o := range arm.Operations {
			needles = append(needles, o.OperationID, o.CorrelationID)
		}
	}
	return needles
}
