// Package provenance writes how programs were built: an in-toto statement with the predicate of SLSA provenance 1.0.
package provenance

import (
	"debug/buildinfo"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"strings"

	slsa "github.com/in-toto/attestation/go/predicates/provenance/v1"
	intoto "github.com/in-toto/attestation/go/v1"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/hcpmesh/hcpmesh/tooling/supplychain/pkg/rebuild"
	"github.com/hcpmesh/hcpmesh/tooling/supplychain/pkg/sbom"
)

// The URIs of the statement. They identify, and are not to be fetched.
const (
	predicateType = "https://slsa.dev/provenance/v1"
	buildType     = "https://hcpmesh.example/builds/go/v1"
	builderID     = "https://hcpmesh.example/builders/make-release"
)

// Of returns the statement for programs that were built from a commit, with the same toolchain and flags.
func Of(commit string, programs []rebuild.Program) ([]byte, error) {
	statement := &intoto.Statement{Type: intoto.StatementTypeUri, PredicateType: predicateType}
	packages := []any{}
	sources := []*intoto.ResourceDescriptor{{Name: "source", Uri: "git+https://" + sbom.Prefix + "@" + commit, Digest: map[string]string{"gitCommit": commit}}}
	known := map[string]bool{}
	settings := map[string]any{}
	for _, program := range programs {
		packages = append(packages, program.Package)
		statement.Subject = append(statement.Subject, &intoto.ResourceDescriptor{Name: program.Name, Digest: map[string]string{"sha256": program.SHA256}})
		info, err := buildinfo.ReadFile(program.Path)
		if err != nil {
			return nil, err
		}
		settings["go"] = info.GoVersion
		for _, setting := range info.Settings {
			settings[setting.Key] = setting.Value
		}
		for _, module := range sbom.Modules(info, commit) {
			url := sbom.URL(module.Path, module.Version)
			if module.Sum == "" || known[url] {
				continue
			}
			known[url] = true
			sum, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(module.Sum, "h1:"))
			if err != nil {
				return nil, fmt.Errorf("the sum of %s is %q: %w", module.Path, module.Sum, err)
			}
			sources = append(sources, &intoto.ResourceDescriptor{Uri: url, Digest: map[string]string{"dirHash": hex.EncodeToString(sum)}})
		}
	}
	external, err := structpb.NewStruct(map[string]any{"commit": commit, "packages": packages})
	if err != nil {
		return nil, err
	}
	internal, err := structpb.NewStruct(settings)
	if err != nil {
		return nil, err
	}
	predicate := &slsa.Provenance{
		BuildDefinition: &slsa.BuildDefinition{BuildType: buildType, ExternalParameters: external, InternalParameters: internal, ResolvedDependencies: sources},
		RunDetails:      &slsa.RunDetails{Builder: &slsa.Builder{Id: builderID}},
	}
	if err := predicate.Validate(); err != nil {
		return nil, err
	}
	text, err := protojson.Marshal(predicate)
	if err != nil {
		return nil, err
	}
	statement.Predicate = &structpb.Struct{}
	if err := protojson.Unmarshal(text, statement.Predicate); err != nil {
		return nil, err
	}
	if err := statement.Validate(); err != nil {
		return nil, err
	}
	return protojson.MarshalOptions{Multiline: true}.Marshal(statement)
}
