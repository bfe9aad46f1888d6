package main

import (
	_ "embed"
	"os"

	"github.com/BurntSushi/toml"

	pb "example.com/yunhe/go-plugin/enginev1"
)

//go:embed plugin.toml
var manifestText string

// Manifest is plugin.toml, which travels whole when the plugin registers.
type Manifest struct {
	Name     string            `toml:"name" json:"name"`
	Version  string            `toml:"version" json:"version"`
	Vendor   string            `toml:"vendor" json:"vendor"`
	Summary  string            `toml:"summary" json:"summary"`
	Contract uint32            `toml:"contract" json:"contract"`
	Command  []string          `toml:"command" json:"command"`
	Target   string            `toml:"target" json:"target"`
	Options  map[string]string `toml:"options" json:"options"`
	Powers   []string          `toml:"powers" json:"powers"`
	Missing  map[string]string `toml:"missing" json:"missing"`
	Limits   struct {
		MemoryMib    int64   `toml:"memory_mib" json:"memory_mib"`
		Calls        int64   `toml:"calls" json:"calls"`
		CallTimeoutS float64 `toml:"call_timeout_s" json:"call_timeout_s"`
	} `toml:"limits" json:"limits"`
	Fields []Mapping `toml:"fields" json:"fields"`
}

// Mapping says how one field of the contract and one of this engine correspond.
type Mapping struct {
	Ours   string `toml:"ours" json:"ours"`
	Theirs string `toml:"theirs" json:"theirs"`
	Note   string `toml:"note" json:"note"`
}

// readManifest returns what YUNHE_PLUGIN_MANIFEST names, so that one program may serve under several names; else what is
// built in.
func readManifest() (*Manifest, error) {
	manifest, text := &Manifest{}, manifestText
	if path := os.Getenv("YUNHE_PLUGIN_MANIFEST"); path != "" {
		given, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		text = string(given)
	}
	_, err := toml.Decode(text, manifest)
	return manifest, err
}

func (m *Manifest) message() *pb.Manifest {
	message := &pb.Manifest{
		Name: m.Name, Version: m.Version, Vendor: m.Vendor, Summary: m.Summary, Contract: m.Contract, Command: m.Command,
		Target: m.Target, Options: m.Options, Powers: m.Powers, Missing: m.Missing,
		Limits: &pb.PluginLimits{MemoryMib: m.Limits.MemoryMib, Calls: m.Limits.Calls, CallTimeoutS: m.Limits.CallTimeoutS},
	}
	for _, field := range m.Fields {
		message.Fields = append(message.Fields, &pb.FieldMapping{Ours: field.Ours, Theirs: field.Theirs, Note: field.Note})
	}
	return message
}
