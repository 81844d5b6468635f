package supplychain

import (
	"debug/buildinfo"
	"fmt"
	"io"
	"runtime/debug"
	"slices"
	"strings"

	cdx "github.com/CycloneDX/cyclonedx-go"
	"github.com/google/uuid"
	"github.com/package-url/packageurl-go"
)

// BillMediaType is the media type of a bill of materials, and of the manifest that attaches one to an image.
const BillMediaType = "application/vnd.cyclonedx+json"

// ModulePrefix is the path of the module of this repository, and begins the path of its module api.
const ModulePrefix = "github.com/hcpmesh/hcpmesh"

// Subject is the program that a bill of materials describes.
type Subject struct {
	Name, Path, SHA256 string
	// Version is that of the program and of the modules of this repository, which have no versions of their own.
	Version string
}

// BillOf reads the modules of a program. Two calls for the same program return the same bill.
func BillOf(s Subject) (*cdx.BOM, error) {
	info, err := buildinfo.ReadFile(s.Path)
	if err != nil {
		return nil, err
	}
	bom := cdx.NewBOM()
	bom.SerialNumber = uuid.NewSHA1(uuid.NameSpaceURL, []byte("sha256:"+s.SHA256)).URN()
	program := cdx.Component{
		Type: cdx.ComponentTypeApplication, Name: s.Name, Version: s.Version, BOMRef: info.Path, PackageURL: PackageURL(info.Path, s.Version),
		Hashes: &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: s.SHA256}},
	}
	bom.Metadata = &cdx.Metadata{Component: &program, Properties: &[]cdx.Property{}}
	for _, setting := range info.Settings {
		*bom.Metadata.Properties = append(*bom.Metadata.Properties, cdx.Property{Name: "go:build:" + setting.Key, Value: setting.Value})
	}
	components := []cdx.Component{library("std", strings.TrimPrefix(info.GoVersion, "go"), "")}
	for _, module := range Modules(info, s.Version) {
		components = append(components, library(module.Path, module.Version, module.Sum))
	}
	bom.Components = &components
	uses := []string{}
	for _, component := range components {
		uses = append(uses, component.BOMRef)
	}
	bom.Dependencies = &[]cdx.Dependency{{Ref: program.BOMRef, Dependencies: &uses}}
	return bom, nil
}

// Modules returns the modules that a program is built from, without the Go standard library, in the order of their paths. Modules of this
// repository have the given version.
func Modules(info *buildinfo.BuildInfo, version string) []debug.Module {
	var modules []debug.Module
	for _, module := range append([]*debug.Module{&info.Main}, info.Deps...) {
		used := *module
		if module.Replace != nil && module.Replace.Version != "" {
			used = *module.Replace
		}
		if used.Path == ModulePrefix || strings.HasPrefix(used.Path, ModulePrefix+"/") {
			used.Version, used.Sum = version, ""
		}
		modules = append(modules, used)
	}
	slices.SortFunc(modules, func(a, b debug.Module) int { return strings.Compare(a.Path, b.Path) })
	return modules
}

// library returns the component of a module. sum is the hash of the module in go.sum.
func library(path, version, sum string) cdx.Component {
	component := cdx.Component{Type: cdx.ComponentTypeLibrary, Name: path, Version: version, BOMRef: path + "@" + version, PackageURL: PackageURL(path, version)}
	if sum != "" {
		component.Properties = &[]cdx.Property{{Name: "go:sum", Value: sum}}
	}
	return component
}

// PackageURL returns the package URL of a Go module or package.
func PackageURL(path, version string) string {
	namespace, name := "", path
	if slash := strings.LastIndexByte(path, '/'); slash >= 0 {
		namespace, name = path[:slash], path[slash+1:]
	}
	return packageurl.NewPackageURL(packageurl.TypeGolang, namespace, name, version, nil, "").ToString()
}

// WriteBill writes a bill of materials as JSON.
func WriteBill(w io.Writer, bom *cdx.BOM) error {
	if err := cdx.NewBOMEncoder(w, cdx.BOMFileFormatJSON).SetPretty(true).EncodeVersion(bom, cdx.SpecVersion1_6); err != nil {
		return fmt.Errorf("writing the bill of materials: %w", err)
	}
	return nil
}
