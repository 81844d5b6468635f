package gather

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
)

// removed replaces secrets.
const removed = "(removed)"

// lastApplied is the annotation in which kubectl stores a copy of an object, including the data of a Secret.
const lastApplied = "kubectl.kubernetes.io/last-applied-configuration"

// Clean removes secrets from a value decoded from JSON: the data of Secrets, fields with secret names, and whatever cleanText
// finds. It changes maps and lists in place.
func Clean(value any) any {
	switch v := value.(type) {
	case map[string]any:
		cleanObject(v)
	case []any:
		for i := range v {
			v[i] = Clean(v[i])
		}
	case string:
		return cleanText(v)
	}
	return value
}

func cleanObject(object map[string]any) {
	if object["kind"] == "Secret" {
		for _, field := range []string{"data", "stringData"} {
			if data, ok := object[field].(map[string]any); ok {
				for key, content := range data {
					data[key] = fmt.Sprintf("(removed: %d characters)", len(fmt.Sprint(content)))
				}
			}
		}
	}
	if metadata, ok := object["metadata"].(map[string]any); ok {
		delete(metadata, "managedFields") // no secret, but most of the text
		if annotations, ok := metadata["annotations"].(map[string]any); ok {
			delete(annotations, lastApplied)
		}
	}
	// Environment variables have their name beside the value.
	if name, ok := object["name"].(string); ok && secretName.MatchString(name) {
		if _, ok := object["value"].(string); ok {
			object["value"] = removed
		}
	}
	for key, content := range object {
		if text, ok := content.(string); ok && text != "" && secretName.MatchString(key) {
			object[key] = removed
			continue
		}
		object[key] = Clean(content)
	}
}

// secretName matches fields with secret text. Fields that refer to a Secret, such as `secretName` and `pullSecret: {name}`, do not match.
var secretName = regexp.MustCompile(`(?i)(password|passwd|passphrase|token|client[-_]?secret|secret[-_]?key|private[-_]?key|signing[-_]?key|client-key-data|kubeconfig|\.?dockerconfigjson|\.?dockercfg|pull[-_]?secret|connection[-_]?string)$`)

// These expressions match known forms of secrets.
var (
	privateKey = regexp.MustCompile(`(?s)-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----.*?(-----END [A-Z0-9 ]*PRIVATE KEY-----|$)`)
	jwt        = regexp.MustCompile(`eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*`)
	bearer     = regexp.MustCompile(`(?i)\b(bearer|basic)\s+[A-Za-z0-9._~+/=-]{8,}`)
	userInfo   = regexp.MustCompile(`://[^/\s:@"]*:[^@\s/"]+@`)
	// assigned matches the name of a secret with its value in YAML, flags and JSON.
	assigned = regexp.MustCompile(`(?i)\b(password|passwd|passphrase|token|access_token|refresh_token|id_token|client[-_]?secret|client-key-data|private[-_]?key|sealedPrivateKey|\.dockerconfigjson|auth)\b(\\?["']?\s*[:=]\s*\\?["']?)([^\s"'\\,;{}\[\]]{6,})`)
	encoded  = regexp.MustCompile(`[A-Za-z0-9+/_-]{40,}={0,2}`)
	config   = regexp.MustCompile(`(?m)^\s*kind:\s*Config\s*$|"kind"\s*:\s*"Config"`)
)

// cleanText removes secrets by their form: private keys, tokens, passwords in URLs and assignments, kubeconfigs, and base64 text
// that contains any of them.
func cleanText(text string) string {
	if isKubeconfig(text) {
		return fmt.Sprintf("(removed: a kubeconfig of %d characters)", len(text))
	}
	text = privateKey.ReplaceAllString(text, "(removed: a private key)")
	text = jwt.ReplaceAllString(text, "(removed: a token)")
	text = bearer.ReplaceAllString(text, "$1 "+removed)
	text = userInfo.ReplaceAllString(text, "://"+removed+"@")
	text = assigned.ReplaceAllString(text, "$1$2"+removed)
	return encoded.ReplaceAllStringFunc(text, func(blob string) string {
		plain, ok := decode(blob)
		if !ok || !isKubeconfig(plain) && !privateKey.MatchString(plain) && !assigned.MatchString(plain) && !userInfo.MatchString(plain) {
			return blob
		}
		return fmt.Sprintf("(removed: %d encoded characters)", len(blob))
	})
}

func isKubeconfig(text string) bool {
	return config.MatchString(text) && strings.Contains(text, "clusters") && strings.Contains(text, "users")
}

// decode decodes base64 of any alphabet.
func decode(blob string) (string, bool) {
	trimmed := strings.TrimRight(blob, "=")
	encoding := base64.RawStdEncoding
	if strings.ContainsAny(trimmed, "-_") {
		encoding = base64.RawURLEncoding
	}
	plain, err := encoding.DecodeString(trimmed)
	return string(plain), err == nil
}

// plain converts a value to the types of decoded JSON.
func plain(value any) (any, error) {
	data, err := json.Marshal(value)
	if err != nil {
		return nil, err
	}
	var decoded any
	err = json.Unmarshal(data, &decoded)
	return decoded, err
}
