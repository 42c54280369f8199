/* train.h: the train function: what every rank runs, in every attempt. */
#ifndef TRAIN_GPT2_TRAIN_H
#define TRAIN_GPT2_TRAIN_H

#include <troupe/train.h>

trp_code train(trp_session *session, trp_bytes job, trp_error *err);

#endif
