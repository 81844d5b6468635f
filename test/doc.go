// Package test holds the rules of the repository as tests, and checks the charts against the programs that they start. Its subfolders hold what crosses services: end-to-end tests of
// a whole region (e2e), contract tests (contract), restore tests (restore) and benchmarks (bench). They use services only
// through their processes and their APIs, and make cached results depend on all sources with DependOnCode.
package test
