package main

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	pb "example.com/yunhe/go-plugin/enginev1"
)

// Problem is a refusal: a code the platform knows, what is wrong, and what to do about it.
type Problem struct {
	code, problem, remedy string
}

func (p *Problem) Error() string { return p.problem }

func refuse(code, remedy, format string, values ...any) *Problem {
	return &Problem{code, fmt.Sprintf(format, values...), remedy}
}

var statusOf = map[string]codes.Code{
	"invalid-input":    codes.InvalidArgument,
	"not-found":        codes.NotFound,
	"unauthenticated":  codes.Unauthenticated,
	"conflict":         codes.FailedPrecondition,
	"unsupported":      codes.Unimplemented,
	"fenced":           codes.Aborted,
	"pool-unreachable": codes.Unavailable,
}

// errLeaving has no trailer: the platform repeats the call to the next instance.
var errLeaving = status.Error(codes.Unavailable, "this instance is leaving")

// told returns err as it travels: a status, and a trailer with the problem.
func told(err error, setTrailer func(metadata.MD)) error {
	if err == nil || errors.Is(err, errLeaving) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	var refusal *Problem
	if !errors.As(err, &refusal) {
		refusal = refuse("internal", "", "The plugin failed: %v.", err)
	}
	packed, err := proto.Marshal(&pb.Problem{Code: refusal.code, Problem: refusal.problem, Remedy: refusal.remedy})
	if err != nil {
		return err
	}
	setTrailer(metadata.Pairs("yunhe-problem-bin", string(packed)))
	code, known := statusOf[refusal.code]
	if !known {
		code = codes.Internal
	}
	return status.Error(code, refusal.problem)
}

func toldUnary(ctx context.Context, err error) error {
	return told(err, func(trailer metadata.MD) { _ = grpc.SetTrailer(ctx, trailer) })
}
