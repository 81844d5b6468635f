// Package test holds what crosses services: the rules of the house as tests, and the whole region driven end to end
// (e2e), under faults (faults) and under load (bench). It imports services only through their processes and their APIs.
package test
