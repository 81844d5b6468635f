package values

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hcpmesh/hcpmesh/internal/mesh"
	"github.com/hcpmesh/hcpmesh/tooling/charts/pkg/workload"
	"github.com/hcpmesh/hcpmesh/tooling/configure/pkg/schema"
)

// object is a part of a JSON Schema.
type object map[string]any

// closed returns the schema of a map with exactly the given keys; those in optional may be missing.
func closed(properties object, optional ...string) object {
	required := []string{}
	for name := range properties {
		if !slices.Contains(optional, name) {
			required = append(required, name)
		}
	}
	slices.Sort(required)
	return object{"type": "object", "additionalProperties": false, "properties": properties, "required": required}
}

func text(pattern string) object { return object{"type": "string", "pattern": pattern} }

func listOf(items object, minimum int) object {
	return object{"type": "array", "items": items, "minItems": minimum, "uniqueItems": true}
}

func integer(minimum, maximum int) object {
	return object{"type": "integer", "minimum": minimum, "maximum": maximum}
}

// Patterns of names in values. None of them matches an empty name.
const (
	namePattern      = `^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`
	uuidPattern      = `^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`
	secretPattern    = `^[a-z][a-z0-9-]{1,62}$`
	filePattern      = `^[a-z0-9]([a-z0-9.-]{0,126}[a-z0-9])?$`
	cidrPattern      = `^[0-9]{1,3}(\.[0-9]{1,3}){3}/[0-9]{1,2}$`
	rolePattern      = `^[a-z][a-z0-9_]{0,62}$`
	authorityPattern = `^https://[a-z0-9.-]+(:[0-9]+)?/$`
	spiffePattern    = `^spiffe://[a-z0-9.-]+/ns/[a-z0-9-]+/sa/[a-z0-9-]+$`
	// repositoryPattern matches repositories with their registry.
	repositoryPattern = `^[a-z0-9.-]+(:[0-9]+)?(/[a-z0-9]+([._-]+[a-z0-9]+)*)+$`
	domainPattern     = `^([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z]{2,}$`
)

// databaseURLPattern is the pattern of URLs of databases, which have no password and verify the server.
const databaseURLPattern = `^postgres://[a-z0-9][a-z0-9_-]{0,62}@[a-z0-9.-]+(:[0-9]+)?/[a-z][a-z0-9_]{0,62}\?sslmode=verify-full$`

// SchemaOf returns the schema of the values of a workload's chart, values.schema.json. It refuses unknown keys, so that a wrong key is an
// error and not a value without effect.
func SchemaOf(w workload.Workload, configuration *schema.Schema) ([]byte, error) {
	image := configuration.Lookup(append(slices.Clone(w.Key), "image", "repository")...)
	if image == nil {
		return nil, fmt.Errorf("the configuration has no key %s.image.repository", strings.Join(w.Key, "."))
	}
	port := integer(1, 65535)
	properties := object{
		"image": closed(object{
			"registry": text(domainPattern), "repository": text(image.Pattern), "digest": text(`^sha256:[0-9a-f]{64}$`),
		}),
		"replicas": integer(1, 20),
		"resources": closed(object{
			"cpuMillicores": integer(10, 64000), "memoryMiB": integer(16, 65536), "memoryLimitMiB": integer(16, 65536),
		}),
		"identity": identitySchema(w),
		"flags":    flagsSchema(w, configuration),
		"secrets": closed(object{
			"provider": object{"enum": []string{CSI, Secret}},
			"volumes": listOf(closed(object{
				"name": text(namePattern), "vault": text(namePattern),
				"files": listOf(closed(object{"path": text(filePattern), "secret": text(secretPattern)}), 1),
			}), 0),
			"authorities": text(namePattern),
		}, "authorities"),
		"network": closed(object{
			"clients":          listOf(closed(object{"namespace": text(namePattern), "ports": listOf(text(namePattern), 1)}), 0),
			"servers":          listOf(closed(object{"namespace": text(namePattern), "ports": listOf(port, 1)}), 0),
			"privateEndpoints": closed(object{"cidr": text(cidrPattern), "ports": listOf(port, 1)}),
			"external":         listOf(port, 0),
		}, "privateEndpoints"),
		"metrics": metricsSchema(),
		// Helm adds a map for the library chart.
		"service": object{"type": "object", "additionalProperties": false, "properties": object{"global": object{"type": "object", "maxProperties": 0}}},
	}
	addFiles(w, properties)
	if w.PrivateLink {
		subscriptions := func(pattern string, minimum int) object { return listOf(text(pattern), minimum) }
		properties["privateLink"] = closed(object{
			"name": text(namePattern), "subnet": object{"const": privateLinkSubnet}, "range": text(cidrPattern),
			"visibility": subscriptions(`^(\*|`+uuidPattern[1:len(uuidPattern)-1]+`)$`, 1), "autoApproval": subscriptions(uuidPattern, 0),
		})
	}
	if w.Peer == mesh.MaestroAgent {
		properties["releaseRepositories"] = listOf(text(repositoryPattern), 1)
	}
	if w.Audit {
		properties["audit"] = closed(object{"storageClass": text(namePattern)})
	}
	if w.Migration {
		addDatabaseJobs(properties)
	}
	whole := closed(properties, "service", "provision")
	whole["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	whole["description"] = fmt.Sprintf("Values of the chart %s. They are computed from the configuration of a region: see docs/deploy/charts.md.", w.Peer)
	encoded, err := json.MarshalIndent(whole, "", "  ")
	if err != nil {
		return nil, err
	}
	return append(encoded, '\n'), nil
}

// identitySchema allows the identity of a program. A program without Azure has none.
func identitySchema(w workload.Workload) object {
	switch {
	case w.WithoutAzure && w.Management:
		return closed(object{})
	case w.WithoutAzure:
		return closed(object{"secret": text(namePattern), "sidecar": sidecarSchema()}, "secret", "sidecar")
	case w.PrivateLink:
		return closed(object{"clientId": text(uuidPattern), "tenantId": text(uuidPattern), "authority": text(authorityPattern)}, "authority")
	}
	return closed(object{"clientId": text(uuidPattern), "tenantId": text(uuidPattern), "authority": text(authorityPattern), "secret": text(namePattern), "sidecar": sidecarSchema()}, "authority", "secret", "sidecar")
}

// sidecarSchema allows the sidecar of a program.
func sidecarSchema() object {
	return closed(object{
		"revision": text(`^asm-1-[0-9]{2}$`), "id": text(spiffePattern), "gateways": listOf(text(spiffePattern), 1), "directPorts": text(`^[1-9][0-9]*(,[1-9][0-9]*)*$`),
	}, "gateways")
}

// flagsSchema allows the flags that keys of the configuration have in x-configures.
func flagsSchema(w workload.Workload, configuration *schema.Schema) object {
	flags := object{}
	configuration.Walk(func(_ []string, p *schema.Property) {
		for _, use := range p.Configures {
			if program, flag, isFlag := strings.Cut(use, " --"); isFlag && program == w.Program() {
				flags[flag] = object{"type": "string", "minLength": 1}
			}
		}
	})
	return object{"type": "object", "additionalProperties": false, "properties": flags}
}

// addDatabaseJobs adds the jobs that prepare a database. The program ends if they have other flags.
func addDatabaseJobs(properties object) {
	identity := object{"clientId": text(uuidPattern), "tenantId": text(uuidPattern), "authority": text(authorityPattern)}
	withSecret := maps.Clone(identity)
	withSecret["secret"] = text(namePattern)
	login := object{
		"database-url": text(databaseURLPattern), "database-audience": text(`^https://` + domainPattern[1:]),
		"database-authentication": object{"enum": []string{withCertificate, withEntra}},
	}
	migrate, provision := maps.Clone(login), maps.Clone(login)
	migrate["grant-to"] = text(rolePattern)
	maps.Copy(provision, object{
		"database-authentication": object{"const": withEntra}, "database-name": text(rolePattern),
		"owner": text(rolePattern), "owner-object-id": text(uuidPattern), "runtime": text(rolePattern), "runtime-object-id": text(uuidPattern),
	})
	properties["migration"] = closed(object{"identity": closed(withSecret, "authority", "secret"), "flags": closed(migrate)})
	properties["provision"] = closed(object{"identity": closed(identity, "authority"), "flags": closed(provision)})
}

// addFiles adds the configuration files of a program.
func addFiles(w workload.Workload, properties object) {
	files := object{}
	for _, name := range fileNames(w) {
		files[name] = object{"type": "string", "minLength": 1}
	}
	properties["files"] = closed(files)
}
