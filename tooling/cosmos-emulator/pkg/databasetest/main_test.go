package databasetest_test

import (
	"os"
	"testing"

	"github.com/hcpmesh/hcpmesh/internal/testing/leaktest"
)

func TestMain(m *testing.M) { os.Exit(leaktest.Check(m.Run())) }
