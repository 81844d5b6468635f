package main

import (
	"crypto/sha256"
	"os"
	"time"
)

// machine is the beginning of the names of the figures that depend on the machine only.
const machine = "machine: "

// measureMachine measures what the machine can do without hcpmesh, because figures of different machines and hours cannot be compared: a fixed computation on one core, and durable writes of 4 KiB to the file system of the stores.
func measureMachine(report *report) error {
	const computations, writes = 20, 100
	block, computed := make([]byte, 4<<20), make([]time.Duration, computations)
	for i := range computed {
		began := time.Now()
		sha256.Sum256(block)
		computed[i] = time.Since(began)
	}
	file, err := os.CreateTemp("", "hcpmesh-bench-")
	if err != nil {
		return err
	}
	defer os.Remove(file.Name())
	defer file.Close()
	written := make([]time.Duration, writes)
	for i := range written {
		began := time.Now()
		if _, err := file.Write(block[:4<<10]); err != nil {
			return err
		}
		if err := file.Sync(); err != nil {
			return err
		}
		written[i] = time.Since(began)
	}
	report.durations(machine+"SHA-256 of 4 MiB", computed, "")
	report.durations(machine+"fsync of 4 KiB", written, "")
	return nil
}
