module github.com/hcpmesh/hcpmesh/tooling/eventgrid-emulator

go 1.26.0
