package version

// v20260901preview returns the api-version 2026-09-01-preview. It adds admin credentials for a key that never
// leaves the client.
func v20260901preview() Version {
	v := v20260630preview()
	v.Name = "2026-09-01-preview"
	v.AcceptsCSR = true
	return v
}
