/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "wire/httpd.h"

/*
 * The page: the files of src/extender/web, which are part of the program. They ask for
 * nothing but each other and what inspect says, and the browser is told to see to that.
 */

/* Answers for the file that the path names; "/" is page.html. */
void view_web_answer(const struct httpd_request *req, struct httpd_reply *reply);
