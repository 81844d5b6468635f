module github.com/hcpmesh/hcpmesh/tooling/supplychain

go 1.26.0

require (
	github.com/CycloneDX/cyclonedx-go v0.11.0
	github.com/google/uuid v1.6.0
	github.com/in-toto/attestation v1.2.0
	github.com/package-url/packageurl-go v0.1.5
	google.golang.org/protobuf v1.36.12-0.20260120151049-f2248ac996af
)
