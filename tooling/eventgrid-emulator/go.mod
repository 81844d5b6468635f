module github.com/hcpmesh/hcpmesh/tooling/eventgrid-emulator

go 1.26.0

require github.com/mochi-mqtt/server/v2 v2.7.9

require (
	github.com/gorilla/websocket v1.5.3 // indirect
	github.com/rs/xid v1.4.0 // indirect
	github.com/stretchr/testify v1.11.1 // indirect
)
