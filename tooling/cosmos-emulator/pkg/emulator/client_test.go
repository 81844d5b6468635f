package emulator_test

import (
	_ "github.com/Azure/azure-sdk-for-go/sdk/data/azcosmos"
)
