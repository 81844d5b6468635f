package supplychain

import (
	"bytes"
	"debug/buildinfo"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"

	slsa "github.com/in-toto/attestation/go/predicates/provenance/v1"
	intoto "github.com/in-toto/attestation/go/v1"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/structpb"
)

// The URIs of the statement. They identify, and are not to be fetched.
const (
	predicateType = "https://slsa.dev/provenance/v1"
	buildType     = "https://hcpmesh.example/builds/go/v1"
	builderID     = "https://hcpmesh.example/builders/make-release"
)

// ProvenanceMediaType is the media type of a statement, and of the manifest that attaches one to an image.
const ProvenanceMediaType = "application/vnd.in-toto+json"

// Artifact is the subject of a statement.
type Artifact struct {
	Name string
	// SHA256 is the digest in hexadecimal.
	SHA256 string
}

// ProvenanceOf returns the statement for programs that were built from a commit, with the same toolchain and flags.
func ProvenanceOf(commit string, programs []Program) ([]byte, error) {
	var subjects []Artifact
	for _, program := range programs {
		subjects = append(subjects, Artifact{program.Name, program.SHA256})
	}
	return statementOf(commit, subjects, programs)
}

// ProvenanceOfImage returns the statement for an image with programs that were built from a commit.
func ProvenanceOfImage(commit string, image Artifact, programs []Program) ([]byte, error) {
	return statementOf(commit, []Artifact{image}, programs)
}

func statementOf(commit string, subjects []Artifact, programs []Program) ([]byte, error) {
	statement := &intoto.Statement{Type: intoto.StatementTypeUri, PredicateType: predicateType}
	for _, subject := range subjects {
		statement.Subject = append(statement.Subject, &intoto.ResourceDescriptor{Name: subject.Name, Digest: map[string]string{"sha256": subject.SHA256}})
	}
	packages := []any{}
	sources := []*intoto.ResourceDescriptor{{Name: "source", Uri: "git+https://" + ModulePrefix + "@" + commit, Digest: map[string]string{"gitCommit": commit}}}
	known := map[string]bool{}
	settings := map[string]any{}
	for _, program := range programs {
		packages = append(packages, program.Package)
		info, err := buildinfo.ReadFile(program.Path)
		if err != nil {
			return nil, err
		}
		settings["go"] = info.GoVersion
		for _, setting := range info.Settings {
			settings[setting.Key] = setting.Value
		}
		for _, module := range Modules(info, commit) {
			url := PackageURL(module.Path, module.Version)
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
	if text, err = protojson.Marshal(statement); err != nil {
		return nil, err
	}
	// protojson varies white space between programs on purpose. The statement of the same programs must always be the same.
	var compact, indented bytes.Buffer
	if err := json.Compact(&compact, text); err != nil {
		return nil, err
	}
	if err := json.Indent(&indented, compact.Bytes(), "", "  "); err != nil {
		return nil, err
	}
	return indented.Bytes(), nil
}
