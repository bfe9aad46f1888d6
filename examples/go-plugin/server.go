package main

import (
	"context"
	"crypto/subtle"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	pb "example.com/yunhe/go-plugin/enginev1"
)

const contract = 1

// Server answers the calls of the contract. It keeps nothing: every call names its target.
type Server struct {
	pb.UnimplementedPluginServer
	pb.UnimplementedOnboardingServer
	pb.UnimplementedAccountsServer
	pb.UnimplementedDataSourceServer
	pb.UnimplementedResourcesServer

	manifest *Manifest
	token    string
	room     chan struct{}
	leaving  chan struct{}
}

func newServer(manifest *Manifest, token string) *Server {
	return &Server{manifest: manifest, token: token, room: make(chan struct{}, manifest.Limits.Calls), leaving: make(chan struct{})}
}

func (s *Server) register(server *grpc.Server) {
	pb.RegisterPluginServer(server, s)
	pb.RegisterOnboardingServer(server, s)
	pb.RegisterAccountsServer(server, s)
	pb.RegisterDataSourceServer(server, pluginData{s})
	pb.RegisterResourcesServer(server, s)
}

// What every call has in common: the token, room, and refusals with their problem.

func (s *Server) unary(ctx context.Context, request any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	if err := s.admit(ctx, info.FullMethod); err != nil {
		return nil, toldUnary(ctx, err)
	}
	if waits, ok := request.(*pb.ObserveRequest); !ok || waits.WaitS == 0 { // whoever only waits takes no room
		select {
		case s.room <- struct{}{}:
			defer func() { <-s.room }()
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	answer, err := handle(ctx, request)
	return answer, toldUnary(ctx, s.lacking(info.FullMethod, err))
}

func (s *Server) stream(server any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
	err := s.admit(stream.Context(), info.FullMethod)
	if err == nil {
		_ = stream.SendHeader(nil)
		err = s.lacking(info.FullMethod, handle(server, stream))
	}
	return told(err, stream.SetTrailer)
}

var powerOf = map[string]string{
	"Resize": "resize", "Pin": "pin", "Pause": "pause", "Resume": "pause", "PutArchive": "files", "GetArchive": "files", "Exec": "exec",
	"Forward": "forward",
}

// lacking says why, where a call was made that this plugin does not have.
func (s *Server) lacking(method string, err error) error {
	if status.Code(err) != codes.Unimplemented {
		return err
	}
	power := powerOf[method[strings.LastIndexByte(method, '/')+1:]]
	return refuse("unsupported", "", "%s does not have the power to %s: %s", s.manifest.Name, power, s.manifest.Missing[power])
}

func (s *Server) admit(ctx context.Context, method string) error {
	if strings.HasPrefix(method, "/grpc.health.v1.") {
		return nil
	}
	carried, _ := metadata.FromIncomingContext(ctx)
	given := strings.Join(carried.Get("authorization"), "")
	if subtle.ConstantTimeCompare([]byte(given), []byte("Bearer "+s.token)) != 1 {
		return refuse("unauthenticated", "Use the token it registered with.", "This call does not carry the plugin's token.")
	}
	return nil
}

// The plugin

func (s *Server) Describe(_ context.Context, request *pb.DescribePluginRequest) (*pb.DescribePluginResponse, error) {
	for _, spoken := range request.Contracts {
		if spoken == contract {
			return &pb.DescribePluginResponse{Manifest: s.manifest.message(), Contract: contract}, nil
		}
	}
	return nil, refuse("conflict", "Use a release of the plugin made for this platform, or upgrade the platform.",
		"%s %s speaks contract %d; the caller speaks %v.", s.manifest.Name, s.manifest.Version, contract, request.Contracts)
}

func (s *Server) Onboard(request *pb.OnboardRequest, stream grpc.ServerStreamingServer[pb.Check]) error {
	for _, step := range []struct {
		name, remedy string
		try          func() error
	}{
		{"directory", "Name an absolute path the plugin's user may write to.", func() error { _, err := openPool(request.Target.GetAddress()); return err }},
		{"shell", "Install a POSIX shell at /bin/sh.", func() error { return exec.Command("/bin/sh", "-c", "exit 0").Run() }},
	} {
		began := time.Now()
		check := &pb.Check{Step: step.name, Ok: true}
		if err := step.try(); err != nil {
			check.Ok, check.Detail, check.Remedy = false, err.Error(), step.remedy
		}
		check.Seconds = time.Since(began).Seconds()
		if err := stream.Send(check); err != nil || !check.Ok {
			return err
		}
	}
	return nil
}

func (s *Server) GetAccount(context.Context, *pb.GetAccountRequest) (*pb.Account, error) {
	return &pb.Account{Identity: "uid " + strconv.Itoa(os.Getuid())}, nil
}

// pluginData is apart because two services have a call named Describe.
type pluginData struct{ *Server }

func (d pluginData) Describe(_ context.Context, request *pb.DescribeEngineRequest) (*pb.Description, error) {
	if _, err := openPool(request.Target.GetAddress()); err != nil {
		return nil, err
	}
	return &pb.Description{
		Engine: d.manifest.Name, Version: d.manifest.Version, Contract: contract, Missing: d.manifest.Missing,
		Isolation: pb.Isolation_ISOLATION_ONE_PROJECT, Limits: "none: what an allocation asks for is counted, not enforced",
	}, nil
}

func (d pluginData) GetCatalogue(_ context.Context, request *pb.GetCatalogueRequest) (*pb.Catalogue, error) {
	total, _, err := node(request.Target)
	one, price := int64(1), (*int64)(nil)
	if given, said := request.Target.GetOptions()["price_micros"]; said && err == nil {
		asked, failed := strconv.ParseInt(given, 10, 64)
		if price = &asked; failed != nil {
			err = refuse("invalid-input", "Give a whole number.", "options.price_micros: %q is not a number.", given)
		}
	}
	return &pb.Catalogue{Specs: []*pb.Spec{{Name: nodeName(), Resources: total, Count: &one, PriceMicrosPerHour: price}}}, err
}

func (d pluginData) GetInventory(_ context.Context, request *pb.GetInventoryRequest) (*pb.Inventory, error) {
	total, used, err := node(request.Target)
	return &pb.Inventory{TakenAt: seconds(time.Now()), Nodes: []*pb.Node{{Id: nodeName(), Total: total, Used: used, Ready: true}}}, err
}

func nodeName() string {
	name, err := os.Hostname()
	if err != nil {
		return "localhost"
	}
	return name
}

// node returns what this machine has, or the pool was told to be, and what is in use on it.
func node(target *pb.Target) (total, used *pb.ResourceVector, err error) {
	memory := map[string]int64{}
	text, err := os.ReadFile("/proc/meminfo")
	for _, line := range strings.Split(string(text), "\n") {
		if fields := strings.Fields(line); len(fields) > 1 {
			memory[strings.TrimSuffix(fields[0], ":")], _ = strconv.ParseInt(fields[1], 10, 64)
		}
	}
	load, _ := os.ReadFile("/proc/loadavg")
	busy, _ := strconv.ParseFloat(strings.Fields(string(load) + " 0")[0], 64)
	total = &pb.ResourceVector{CpuMillis: int64(runtime.NumCPU()) * 1000, MemoryMib: memory["MemTotal"] / 1024}
	for name, field := range map[string]*int64{"cpu_millis": &total.CpuMillis, "memory_mib": &total.MemoryMib} {
		if given, said := target.GetOptions()[name]; said && err == nil {
			if *field, err = strconv.ParseInt(given, 10, 64); err != nil {
				err = refuse("invalid-input", "Give a whole number.", "options.%s: %q is not a number.", name, given)
			}
		}
	}
	used = &pb.ResourceVector{
		CpuMillis: min(int64(busy*1000), int64(runtime.NumCPU())*1000),
		MemoryMib: (memory["MemTotal"] - memory["MemAvailable"]) / 1024,
	}
	return total, used, err
}

// Resources

func (s *Server) Launch(_ context.Context, request *pb.LaunchRequest) (*pb.Done, error) {
	return s.do(request.Target, func(pool *Pool) error { return pool.launch(request.Order) })
}

func (s *Server) Stop(_ context.Context, request *pb.StopRequest) (*pb.Done, error) {
	return s.do(request.Target, func(pool *Pool) error { return pool.stop(request.AllocationId, request.Token, request.GraceS) })
}

func (s *Server) Release(_ context.Context, request *pb.ReleaseRequest) (*pb.Done, error) {
	return s.do(request.Target, func(pool *Pool) error { return pool.release(request.AllocationId, request.Token) })
}

func (s *Server) do(target *pb.Target, act func(*Pool) error) (*pb.Done, error) {
	pool, err := openPool(target.GetAddress())
	if err == nil {
		err = act(pool)
	}
	return &pb.Done{}, err
}

func (s *Server) Observe(ctx context.Context, request *pb.ObserveRequest) (*pb.Observation, error) {
	pool, err := openPool(request.Target.GetAddress())
	if err != nil {
		return nil, err
	}
	deadline := time.Now().Add(time.Duration(request.WaitS * float64(time.Second)))
	for pool.version() <= request.Beyond && time.Now().Before(deadline) {
		if err := pause(ctx, s.leaving); err != nil {
			return nil, err
		}
	}
	return pool.observation()
}

func (s *Server) ReadLogs(request *pb.ReadLogsRequest, stream grpc.ServerStreamingServer[pb.LogChunk]) error {
	pool, err := openPool(request.Target.GetAddress())
	if err != nil {
		return err
	}
	return pool.readLogs(stream.Context(), request, s.leaving, stream.Send)
}

func (s *Server) ReadUsage(request *pb.ReadUsageRequest, stream grpc.ServerStreamingServer[pb.UsageMinute]) error {
	pool, err := openPool(request.Target.GetAddress())
	if err != nil {
		return err
	}
	return readUsage(pool, request.Beyond, stream.Send)
}
