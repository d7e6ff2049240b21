package pgstore

import (
	"strings"
	"testing"

	"github.com/semel-dev/semel"
)

// TestRefused has the servers that no test can start: those too old.
func TestRefused(t *testing.T) {
	for _, c := range []struct {
		server server
		says   string // empty: taken
		class  semel.Class
	}{
		{server{version: 130000, sync: "on", encoding: "UTF8"}, "", 0},
		{server{version: 129999, sync: "on", encoding: "UTF8"}, "use 13 or newer", semel.ClassFault},
		{server{version: 120017, sync: "on", encoding: "UTF8"}, "PostgreSQL 12.17 is too old", semel.ClassFault},
		{server{version: 90624, sync: "on", encoding: "UTF8", standby: true}, "too old", semel.ClassFault},
		{server{version: 180000, sync: "local", encoding: "UTF8", standby: true}, "read-write", semel.ClassInfrastructure},
		{server{version: 180000, sync: "off", encoding: "UTF8"}, `ALTER ROLE "Joe ""J"""`, semel.ClassFault},
		{server{version: 180000, sync: "local", encoding: "EUC_JP"}, "EUC_JP", semel.ClassFault},
	} {
		err := c.server.refused(`Joe "J"`)
		if (err == nil) != (c.says == "") {
			t.Errorf("%+v: %v", c.server, err)
			continue
		}
		if err != nil && (!strings.Contains(err.Error(), c.says) || Classify(err) != c.class) {
			t.Errorf("%+v: class %v: %v", c.server, Classify(err), err)
		}
	}
}

// TestDriverWords: what a value says of itself does not steer its error.
func TestDriverWords(t *testing.T) {
	for range 20 {
		for text, want := range map[string]semel.Class{
			`failed to encode args[0]: unable to encode "conn closed, unexpected EOF" into text format for int8 (OID 20): cannot find encode plan`: semel.ClassPermanent,
			"failed to encode args[0]: cannot find encode plan for conn closed":                                                                    semel.ClassFault,
			"conn closed": semel.ClassInfrastructure,
		} {
			if got, ok := ofDriver(text); got != want || !ok {
				t.Errorf("%s: %v", text, got)
			}
		}
	}
}
