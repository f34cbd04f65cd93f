// jsonpath answers, one line a question, what client-go's JSONPath selects. Texts arrive as hex and leave as hex.
//
//	allow|PATH|JSON   -> ok|text, or parse|message, or error|message; missing keys are allowed
//	refuse|PATH|JSON  -> the same, missing keys are errors
package main

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"fmt"
	"os"
	"strings"

	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/util/jsonpath"
)

func main() {
	in := bufio.NewScanner(os.Stdin)
	in.Buffer(nil, 1<<20)
	out := bufio.NewWriter(os.Stdout)
	defer out.Flush()
	for in.Scan() {
		words := strings.Split(in.Text(), "|")
		kind, message := find(words[0] == "allow", text(words[1]), text(words[2]))
		fmt.Fprintf(out, "%s|%s\n", kind, hex.EncodeToString([]byte(message)))
	}
}

func find(allow bool, path, document string) (kind, message string) {
	defer func() {
		if reason := recover(); reason != nil {
			kind, message = "panic", fmt.Sprint(reason)
		}
	}()
	var object map[string]interface{}
	if err := json.Unmarshal([]byte(document), &object); err != nil {
		panic(err)
	}
	compiled := jsonpath.New("path").AllowMissingKeys(allow)
	if err := compiled.Parse("{" + path + "}"); err != nil {
		return "parse", err.Error()
	}
	var printed bytes.Buffer
	if err := compiled.Execute(&printed, object); err != nil {
		return "error", err.Error()
	}
	return "ok", printed.String()
}

func text(word string) string {
	decoded, err := hex.DecodeString(word)
	if err != nil {
		panic(err)
	}
	return string(decoded)
}
