module github.com/hcpmesh/hcpmesh/tooling/cosmos-emulator

go 1.26.0
