/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "view/inspect.h"
#include "wire/httpd.h"

/*
 * serve.c         who is answered, routes, the life of the server
 * serve_stream.c  inspect as a stream
 */

/* Answers with the stream of view/changes.h and the line of the cluster. The source's
 * lock must outlive the server. */
void serve_stream(const struct view_source *source, struct httpd_reply *reply);
