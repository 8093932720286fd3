/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "wire/httpd.h"

/*
 * The web page: the files of src/view/web, compiled into the program. They load
 * nothing but each other and inspect; a Content-Security-Policy makes the browser enforce
 * that.
 */

/* Answers with the file of the request's path; "/" is page.html. */
void view_web_answer(const struct httpd_request *req, struct httpd_reply *reply);
