/* The operations of a loader whose batches an agent prepares (loader/attach.h). */
#ifndef HR_AGENT_CLIENT_ATTACH_H
#define HR_AGENT_CLIENT_ATTACH_H

struct hr__attachment;

extern const struct hr__attachment hr__attachment_agent;

#endif
