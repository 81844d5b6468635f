package broker

import mqtt "github.com/mochi-mqtt/server/v2"

// TakenOver is the message of the log record of a client that has connected again.
const TakenOver = takenOver

// AddHook makes the engine call another hook.
func (b *Broker) AddHook(hook mqtt.Hook) error { return b.server.AddHook(hook, nil) }
